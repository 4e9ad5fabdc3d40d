"""Derived columns: what an expression is worth in a row, and where a wrong one is wrong."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewise.explore.expr import ColumnRef, ExpressionError, node_count, parse_expression
from tracewise.explore.functions import FUNCTIONS
from tracewise.explore.sql import Sql, expression_sql, sql
from tracewise.store.table import Column, Kind

COLUMNS = {
    "n": Column("n", Kind.NUMBER, "BIGINT"),
    "x": Column("x", Kind.NUMBER, "DOUBLE"),
    "s": Column("s", Kind.TEXT, "VARCHAR"),
    "t": Column("t", Kind.TIME, "TIMESTAMP"),
    "b": Column("b", Kind.BOOL, "BOOLEAN"),
    "j": Column("j", Kind.NESTED, "JSON"),
    "a b": Column("a b", Kind.NUMBER, "INTEGER"),
    "gone": Column("gone", Kind.NUMBER, "INTEGER"),
}
ROW = """(SELECT 7 AS n, 2.5 AS x, 'Layer.3.weight' AS s, TIMESTAMP '2026-11-22 03:50:12.5' AS t, true AS b,
    '{"k": [1, "two"]}'::JSON AS j, 3 AS "a b", NULL::INTEGER AS gone)"""


def resolve(name):
    column = COLUMNS.get(name)
    return ColumnRef(column) if column else None


def value(engine, text):
    found = expression_sql(parse_expression(text, resolve))
    with engine.session() as session:
        return session.fetch(sql("SELECT {0} FROM {1}", found, Sql(ROW)))[0][0]


VALUES = [
    ("n / 2", 3.5),
    ("2 + 3 * 4 - 1", 13),
    ("(2 + 3) * 4", 20),
    ("10 - 2 - 3", 5),
    ("-n % 4", -3),
    ("--n", 7),
    ("1e3 + .5", 1000.5),
    ("n / 0", None),
    ("n % 0", None),
    ("9223372036854775807 + n", float(9223372036854775807)),
    ("n > 3 and x < 3 or false", True),
    ("not n = 7", False),
    ("not not b", True),
    ("gone = 1", None),
    ("gone = 1 or true", True),
    ("null", None),
    ("coalesce(gone, n)", 7),
    ("nullif(n, 7)", None),
    ("is_null(gone)", True),
    ("if(n >= 7, 'big', 'small')", "big"),
    ("case when n < 3 then 'a' when n < 9 then 'b' else 'c' end", "b"),
    ("case when false then 1 end", None),
    ("`a b` * 2", 6),
    ("lower(s)", "layer.3.weight"),
    ("upper(left(s, 2))", "LA"),
    ("split(s, '.', 2)", "3"),
    ("substr(s, 1, 5)", "Layer"),
    ("replace(s, '.', '/')", "Layer/3/weight"),
    ("concat(s, '-', n)", "Layer.3.weight-7"),
    ("length(trim('  ab '))", 2),
    ("contains(s, '3')", True),
    ("starts_with(s, 'Lay') and ends_with(s, 'ght')", True),
    ("position(s, '3')", 7),
    ("regexp_extract(s, '[0-9].*')", "3.weight"),
    ("regexp_group(s, '([a-z]+)$')", "weight"),
    ("regexp_matches(s, '^L')", True),
    ("regexp_replace(s, '[0-9]+', 'N')", "Layer.N.weight"),
    ("'it''s' = 'it''s'", True),
    ("round(x)", 3),
    ("floor(x) + ceil(x)", 5),
    ("abs(-x)", 2.5),
    ("sqrt(-1)", None),
    ("log10(1000)", 3),
    ("ln(0)", None),
    ("pow(2, 10)", 1024),
    ("least(n, x, 1)", 1),
    ("greatest(n, x)", 7),
    ("number('12.5') + number('zwölf')", None),
    ("number('12.5') + 1", 13.5),
    ("text(n)", "7"),
    ("json_get(j, '$.k[1]')", "two"),
    ("json_get('no json', '$.k')", None),
    ("hour(t) * 60 + minute(t)", 230),
    ("weekday(t)", 7),
    ("epoch(t)", 1795319412.5),
    ("epoch(date_trunc('hour', t))", 1795316400),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_an_expression_has_this_value(engine, text, expected):
    found = value(engine, text)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_every_function_is_computed_above_or_checked_by_the_database(engine):
    """A template that the database does not know would show only when somebody uses it."""
    samples = {Kind.NUMBER: "n", Kind.TEXT: "s", Kind.TIME: "t", Kind.BOOL: "b", Kind.NESTED: "j"}
    for name, function in FUNCTIONS.items():
        arguments = [samples[min(kinds)] for kinds in function.arguments]
        if function.choices:
            arguments[0] = f"'{function.choices[0]}'"
        if name == "json_get":
            arguments = ["j", "'$.k'"]
        if name == "regexp_group":
            arguments = ["s", "'(a)'"]
        value(engine, f"{name}({', '.join(arguments)})")


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("n +", "expected a value", 3),
        ("n + * 2", "expected a value, found '*'", 4),
        ("n n", "'n' is left over", 2),
        ("(n", "expected ')'", 2),
        ("wrong + 1", "no column 'wrong'", 0),
        ("n + wrong", "no column 'wrong'", 4),
        ("sleep(1)", "no function 'sleep'", 0),
        ("n; drop", "';' cannot stand here", 1),
        ("s + 1", "'+' needs numbers, got text", 2),
        ("n = s", "'=' compares number with text", 2),
        ("lower(n)", "argument 1 of lower is text, got number", 0),
        ("split(s, '.')", "split takes 3 arguments, got 2", 0),
        ("if(n, 1, 2)", "a condition is true or false, got number", 0),
        ("if(b, 1, 's')", "number and text", 0),
        ("date_trunc('aeon', t)", "argument 1 of date_trunc is one of", 0),
        ("not 3", "'not' needs true or false", 5),
        ("then", "'then' cannot stand here", 0),
        ("'open", '"\'" cannot stand here', 0),
        ("case n end", "expected 'when'", 5),
        ("read_text('/etc/passwd')", "no function 'read_text'", 0),
    ],
)
def test_a_wrong_expression_is_told_with_its_position(text, message, position):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, resolve)
    assert message in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize(
    "text", ["(" * 100 + "n" + ")" * 100, "+".join(["n"] * 500), "not " * 400 + "b", "-" * 900 + "n", "n" + " " * 3_000]
)
def test_an_endless_expression_is_refused(text):
    with pytest.raises(ExpressionError, match=r"more than|at most"):
        parse_expression(text, resolve)


@given(st.text(max_size=40) | st.text("nxsbt()+-*/%=<>,' `1.0", max_size=40))
def test_no_text_fails_otherwise(text):
    with contextlib.suppress(ExpressionError):
        assert node_count(parse_expression(text, resolve)) >= 1


NUMBERS = st.integers(-1000, 1000).map(str) | st.sampled_from(["n", "x"])


@st.composite
def arithmetic(draw, depth=3):
    """A text and its value by Python's own rules."""
    if depth == 0 or draw(st.booleans()):
        text = draw(NUMBERS)
        return text if not text.startswith("-") else f"({text})", {"n": 7.0, "x": 2.5}.get(
            text
        ) if text in "nx" else float(text)
    (left, one), (right, two) = draw(arithmetic(depth - 1)), draw(arithmetic(depth - 1))
    operator = draw(st.sampled_from("+-*/%"))
    if one is None or two is None or (operator in "/%" and two == 0):
        return f"({left} {operator} {right})", None
    operate = {"+": one.__add__, "-": one.__sub__, "*": one.__mul__, "/": one.__truediv__}
    return f"({left} {operator} {right})", math.fmod(one, two) if operator == "%" else operate[operator](two)


@given(arithmetic())
def test_arithmetic_is_that_of_python(engine, case):
    text, expected = case
    found = value(engine, text)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-12, abs=1e-12))


def test_a_template_takes_its_parts_in_any_order_and_number():
    one, two = Sql("a + ?", (1,)), Sql("?", ("x",))
    assert sql("f({1}, {0}, {0})", one, two) == Sql("f(?, a + ?, a + ?)", ("x", 1, 1))
    assert sql("g({0}, {rest})", one, two, two) == Sql("g(a + ?, ?, ?)", (1, "x", "x"))
