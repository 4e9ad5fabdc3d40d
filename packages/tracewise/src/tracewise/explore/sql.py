"""Fragments of SQL with bound values, and how expressions, filters and measures become such fragments.

What a user typed is only ever a parameter. Identifiers are columns of the table, quoted; everything else is text of
this module and of ``functions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tracewise.explore.bind import Bound, BoundFilter, BoundMeasure, Named, Period, Value
from tracewise.explore.expr import Call, Case, ColumnRef, Expression, Literal, Operation
from tracewise.explore.functions import FUNCTIONS
from tracewise.explore.query import Aggregate, Op
from tracewise.store.table import UNITS_PER_US, Column, Kind, TimeColumn, TimeUnit

_SLOT = re.compile(r"\{(\d+|rest)\}")


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL text with one ``?`` for each of ``params``, in order."""

    text: str
    params: tuple[Value | None, ...] = ()


def sql(template: str, *parts: Sql) -> Sql:
    """``template`` with ``{0}``, ``{1}`` ... replaced by ``parts``, and ``{rest}`` by all after those with a number."""
    numbered = [int(slot) for slot in _SLOT.findall(template) if slot != "rest"]
    rest = join(", ", parts[max(numbered, default=-1) + 1 :])
    pieces, params, at = list[str](), list[Value | None](), 0
    for slot in _SLOT.finditer(template):
        part = rest if slot[1] == "rest" else parts[int(slot[1])]
        pieces += (template[at : slot.start()], part.text)
        params += part.params
        at = slot.end()
    return Sql("".join((*pieces, template[at:])), tuple(params))


def join(separator: str, parts: Iterable[Sql]) -> Sql:
    listed = list(parts)
    return Sql(separator.join(part.text for part in listed), tuple(param for part in listed for param in part.params))


def quoted(name: str) -> Sql:
    """The identifier of a table or a column that the database itself named."""
    return Sql('"' + name.replace('"', '""') + '"')


def text_value(value: str) -> Sql:
    return Sql("CAST(? AS VARCHAR)", (value,))


def number_value(value: int | float, type_name: str = "") -> Sql:
    """A number; as FLOAT where it is compared with a column of that precision, so that 0.1 equals 0.1."""
    if type_name == "FLOAT":
        return Sql("CAST(? AS FLOAT)", (value,))
    return Sql("CAST(? AS DOUBLE)" if isinstance(value, float) else "?", (value,))


def time_value(time_us: int) -> Sql:
    return Sql("make_timestamp(CAST(? AS BIGINT))", (time_us,))


def column_value(column: Column) -> Sql:
    """A column in the form that expressions, groups and cells use: nested types and enums by their text."""
    name = quoted(column.name)
    match column.kind:
        case Kind.NESTED:
            is_json = column.type.endswith("]") or column.type.startswith(("STRUCT(", "MAP("))
            return sql("CAST(to_json({0}) AS VARCHAR)" if is_json else "CAST({0} AS VARCHAR)", name)
        case Kind.TEXT if column.type != "VARCHAR":
            return sql("CAST({0} AS VARCHAR)", name)
        case Kind.TIME if column.type != "TIMESTAMP":
            return sql("CAST({0} AS TIMESTAMP)", name)
        case _:
            return name


# One row an operator; operands in brackets, numbers as floating point so that nothing overflows.
_OPERATORS: dict[str, str] = {
    **{mark: f"(CAST({{0}} AS DOUBLE) {mark} CAST({{1}} AS DOUBLE))" for mark in "+-*"},
    "/": "(CAST({0} AS DOUBLE) / nullif(CAST({1} AS DOUBLE), 0))",
    "%": "(CAST({0} AS DOUBLE) % nullif(CAST({1} AS DOUBLE), 0))",
    **{mark: f"({{0}} {mark} {{1}})" for mark in ("=", "!=", "<", "<=", ">", ">=")},
    "and": "({0} AND {1})",
    "or": "({0} OR {1})",
    "not": "(NOT {0})",
    "neg": "(- CAST({0} AS DOUBLE))",
}


def expression_sql(expression: Expression) -> Sql:
    """The value of an expression in a row."""
    match expression:
        case ColumnRef(column):
            return column_value(column)
        case Literal(None):
            return Sql("NULL")
        case Literal(value, Kind.TEXT):
            return text_value(str(value))
        case Literal(value):
            return Sql("?", (value,))
        case Operation(operator, operands):
            return sql(_OPERATORS[operator], *map(expression_sql, operands))
        case Call(function, arguments):
            return sql(FUNCTIONS[function].sql, *map(expression_sql, arguments))
        case Case(branches, otherwise):
            whens = [sql("WHEN {0} THEN {1}", expression_sql(test), expression_sql(then)) for test, then in branches]
            return sql("CASE {0} ELSE {1} END", join(" ", whens), expression_sql(otherwise))


def value_sql(named: Named) -> Sql:
    return expression_sql(named.expression)


def cell_sql(named: Named) -> Sql:
    """A value as the results carry it: times as microseconds since the epoch."""
    return sql("epoch_us({0})" if named.kind is Kind.TIME else "{0}", value_sql(named))


def filter_sql(condition: BoundFilter) -> Sql:
    """A filter as a predicate that is true or false, never null: a negation holds where there is no value."""
    column = value_sql(condition.column)
    match condition.op:
        case Op.NULL:
            return sql("({0} IS NULL)", column)
        case Op.NOT_NULL:
            return sql("({0} IS NOT NULL)", column)
        case Op.EMPTY:
            return sql("(coalesce(CAST({0} AS VARCHAR), '') = '')", column)
        case Op.NOT_EMPTY:
            return sql("(coalesce(CAST({0} AS VARCHAR), '') != '')", column)
        case Op.NE:
            return sql("({0} IS NOT TRUE)", _any(condition, Op.EQ, column))
        case Op.EXCLUDES:
            return sql("({0} IS NOT TRUE)", _any(condition, Op.CONTAINS, column))
        case op:
            return _any(condition, op, column)


_COMPARE = {Op.EQ: "=", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}
_TEXT_TESTS = {Op.CONTAINS: "contains({0}, {1})", Op.STARTS: "starts_with({0}, {1})"}


def _any(condition: BoundFilter, op: Op, column: Sql) -> Sql:
    """The predicate that holds where any of the values fits."""
    return sql("({0})", join(" OR ", [_one(condition, op, column, value) for value in condition.values]))


def _one(condition: BoundFilter, op: Op, column: Sql, value: Value) -> Sql:
    kind = condition.column.kind
    if op in _COMPARE and kind not in (Kind.TEXT, Kind.NESTED):
        return sql(f"{{0}} {_COMPARE[op]} {{1}}", column, _typed(condition.column, value))
    text = sql("CAST({0} AS VARCHAR)", column) if kind is not Kind.TEXT else column
    pattern = text_value(str(value))
    if op is Op.MATCHES:
        return sql("regexp_matches({0}, {1}, {2})", text, pattern, Sql("'c'" if condition.cased else "'i'"))
    if not condition.cased:
        text, pattern = sql("lower({0})", text), sql("lower({0})", pattern)
    return sql(_TEXT_TESTS.get(op) or f"{{0}} {_COMPARE[op]} {{1}}", text, pattern)


def _typed(column: Named, value: Value) -> Sql:
    if isinstance(value, bool | str):
        return Sql("?", (value,))
    if column.kind is Kind.TIME:
        return time_value(int(value))
    return number_value(value, column.expression.column.type if isinstance(column.expression, ColumnRef) else "")


def equals_key(named: Named, value: Value | None) -> Sql:
    """True where a group has this value, null included."""
    if value is None:
        return Sql("NULL")
    if isinstance(value, str):
        return text_value(value)
    return _typed(named, value)


def time_us_sql(time: TimeColumn) -> Sql:
    """A row's time in microseconds since the epoch."""
    if time.unit is TimeUnit.TIMESTAMP:
        return sql("epoch_us({0})", column_value(time.column))
    numerator, denominator = UNITS_PER_US[time.unit]
    name = quoted(time.column.name)
    if numerator > 1:
        return sql(f"CAST(floor({{0}} / {numerator}) AS BIGINT)", name)
    return sql(f"CAST(floor({{0}} * {denominator}) AS BIGINT)", name)


_MAKERS = {"TIMESTAMP": "make_timestamp", "TIMESTAMP WITH TIME ZONE": "make_timestamptz"}


def time_bound(time: TimeColumn, time_us: int) -> Sql:
    """A moment in the unit of the column: compared bare, it lets the database skip files by their statistics."""
    if time.unit is TimeUnit.TIMESTAMP:
        return Sql(f"{_MAKERS.get(time.column.type, 'make_timestamp')}(CAST(? AS BIGINT))", (time_us,))
    numerator, denominator = UNITS_PER_US[time.unit]
    if denominator == 1:
        return Sql("?", (time_us * numerator,))
    whole, rest = divmod(time_us, denominator)
    return Sql("?", (whole if not rest else time_us / denominator,))


def period_sql(time: TimeColumn, period: Period) -> Sql:
    """The predicate of rows within a period, on the bare column wherever its type can be compared as it is."""
    is_bare = time.column.kind is Kind.NUMBER or time.column.type in _MAKERS
    column = quoted(time.column.name) if is_bare else column_value(time.column)
    start, end = time_bound(time, period.start_us), time_bound(time, period.end_us)
    return sql("({0} >= {1} AND {0} < {2})", column, start, end)


def where_sql(bound: Bound, period: Period | None = None, *more: Sql) -> Sql:
    """The WHERE clause of the filters and of ``period``, else of the times asked for; empty if nothing is."""
    asked = period or (bound.period if bound.restricts_time else None)
    terms = [period_sql(bound.time, asked)] if asked and bound.time else []
    terms += [filter_sql(condition) for condition in bound.filters]
    terms += more
    return sql("WHERE {0}", join(" AND ", terms)) if terms else Sql("")


def measure_sql(measure: BoundMeasure, bound: Bound, length_us: int) -> Sql:
    """The value of a measure over a group of rows in a time of this length; a share is a count until it is divided."""
    weight = value_sql(bound.weight) if bound.weight else None
    count = sql("coalesce(sum({0}), 0)", weight) if weight else Sql("count(*)")
    if measure.aggregate is Aggregate.RATE:
        return sql("({0} / {1})", count, Sql("CAST(? AS DOUBLE)", (max(length_us, 1) / 1e6,)))
    if measure.column is None:
        return count
    value = value_sql(measure.column)
    number = sql("CAST({0} AS DOUBLE)", value)
    if quantile := measure.aggregate.quantile:
        return sql("quantile_cont({0}, {1})", number, Sql(repr(quantile)))
    match measure.aggregate:
        case Aggregate.SUM if weight:
            return sql("sum({0} * {1})", number, weight)
        case Aggregate.AVG if weight:
            return sql("(sum({0} * {1}) / sum({1}) FILTER (WHERE {0} IS NOT NULL))", number, weight)
        case Aggregate.SUM:
            return sql("sum({0})", value)
        case Aggregate.AVG:
            return sql("avg({0})", number)
        case Aggregate.STDDEV:
            return sql("stddev_samp({0})", number)
        case Aggregate.DISTINCT:
            return sql("count(DISTINCT {0})", value)
        case aggregate:
            return sql(f"{aggregate.value}({{0}})", cell_sql(measure.column))
