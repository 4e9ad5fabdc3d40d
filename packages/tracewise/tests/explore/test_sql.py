"""Queries against a table of hostile values: the answer is Python's own, and no text of the user is SQL."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewise.explore import statements
from tracewise.explore.answers.compute import compute
from tracewise.explore.bind import Bound, bind, choose_time
from tracewise.explore.engine import Engine, QueryError
from tracewise.explore.query import Aggregate, Derived, Filter, Having, Measure, Op, Order, Query, View
from tracewise.explore.timeparse import Clock, time_text
from tracewise.explore.url import parse_query, query_string

from . import evaluation
from .conftest import ODD_NAME, ROWS, START, TEXTS

TEXT_COLUMNS, NUMBER_COLUMNS = ("kind", ODD_NAME), ("rank", "dur_us", "weight")
HOSTILE = st.sampled_from([text for text in TEXTS if text is not None]) | st.text(
    # DuckDB and Python agree on the lower case of these; of some others they do not.
    st.characters(max_codepoint=0x7F, exclude_characters="\0"), max_size=6,
)  # fmt: skip
NUMBER = st.sampled_from(["0", "1", "-1", "2", "0.5", "1.25", "1e6", "-3", "100000"])


def bound_of(engine: Engine, query: Query) -> Bound:
    table = engine.database.tables["hostile"]
    time_column, issues = choose_time(query, table)
    assert time_column is not None
    assert not issues
    with engine.session() as session:
        first, last = session.fetch(statements.extent(table, time_column))[0]
    return bind(query, table, time_column, Clock(last, first, last, UTC))


def answered(engine: Engine, query: Query):
    """The result of a query and the statements that ran, after a turn through its link."""
    again, issues = parse_query(query_string(query))
    assert not issues
    bound = bound_of(engine, again)
    assert bound.issues == ()
    with engine.session() as session:
        return compute(bound, session), session.ran


@st.composite
def filters(draw):
    cased = draw(st.booleans())
    op = draw(st.sampled_from([op for op in Op if op is not Op.MATCHES]))
    values = st.lists(HOSTILE, min_size=1, max_size=3)
    if op in (Op.CONTAINS, Op.EXCLUDES, Op.STARTS) or not op.takes_values:
        column = draw(st.sampled_from(TEXT_COLUMNS))
    else:
        column = draw(st.sampled_from(TEXT_COLUMNS + NUMBER_COLUMNS))
        values = st.lists(NUMBER, min_size=1, max_size=3) if column in NUMBER_COLUMNS else values
    return Filter(column, op, tuple(draw(values)) if op.takes_values else (), cased)


MEASURES = st.one_of(
    st.just(Measure(Aggregate.COUNT)),
    st.builds(Measure, st.just(Aggregate.DISTINCT), st.sampled_from(TEXT_COLUMNS + NUMBER_COLUMNS)),
    st.builds(
        Measure,
        st.sampled_from([one for one in Aggregate if one.takes_column and one is not Aggregate.DISTINCT]),
        st.sampled_from(NUMBER_COLUMNS),
    ),
)


@st.composite
def table_queries(draw):
    weight = draw(st.sampled_from(["", "", "weight"]))
    return Query(
        view=View.TABLE,
        filters=tuple(draw(st.lists(filters(), max_size=3))),
        groups=tuple(draw(st.lists(st.sampled_from(("rank", "is_ok", *TEXT_COLUMNS)), max_size=2, unique=True))),
        measures=tuple(draw(st.lists(MEASURES, min_size=1, max_size=3, unique=True))),
        limits=((View.TABLE, draw(st.sampled_from([1, 5, 5_000]))),),
        weight=weight,
    )


def close(found, expected):
    return found == (
        pytest.approx(float(expected), rel=1e-9, abs=1e-9) if isinstance(expected, int | float) else expected
    )


@pytest.mark.slow
@settings(max_examples=80)
@given(table_queries())
def test_a_table_is_what_python_computes(engine, rows, query):
    result, _ = answered(engine, query)
    kept = [row for row in rows if all(evaluation.matches(row, one) for one in query.filters)]
    expected = evaluation.grouped(kept, query.groups)
    if query.groups:
        assert result.group_count == len(expected)
        assert len(result.groups) == min(len(expected), query.limit)
    shown = set()
    for group in result.groups:
        shown.add(group.key)
        members = expected.get(group.key, [])
        for value, measure in zip(group.values, query.measures, strict=True):
            assert close(value, evaluation.measure(members, measure, query.weight)), (group.key, str(measure))
    rest = [row for key, members in expected.items() if key not in shown for row in members]
    if result.other:
        for value, measure in zip(result.other.values, query.measures, strict=True):
            assert close(value, evaluation.measure(rest, measure, query.weight)), ("other", str(measure))
    else:
        assert not rest
    first = [group.values[0] for group in result.groups if group.values[0] is not None]
    assert first == sorted(first, reverse=True)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(filters(), max_size=3), st.sampled_from([37, 200, 1_000]))
def test_pages_of_samples_hold_each_row_once_in_order(engine, rows, conditions, limit):
    query = Query(filters=tuple(conditions), limits=((View.SAMPLES, limit),), columns=("time", "kind"))
    keys, times, after = [], [], ""
    for _ in range(ROWS):
        result, _ = answered(engine, replace(query, after=after))
        keys += [sample.row_key for sample in result.samples]
        times += [sample.time_us for sample in result.samples]
        after = result.next_page
        if not after:
            break
    kept = [number for number, row in enumerate(rows) if all(evaluation.matches(row, one) for one in conditions)]
    timed = [number for number in kept if rows[number]["time"] is not None]
    # Rows without a time stand after all others, on the last page only.
    assert sorted(keys[: len(timed)]) == timed
    assert set(keys) <= set(kept)
    assert len(keys) == len(set(keys))
    expected = sorted((evaluation.time_us(rows[number]) for number in timed), reverse=True)
    assert times[: len(timed)] == expected


@settings(max_examples=40)
@given(
    st.sampled_from(["", "rank", "kind"]), st.sampled_from(["1 min", "10 min", "auto"]), st.lists(filters(), max_size=2)
)
def test_a_series_adds_up_to_the_rows(engine, rows, group, grain, conditions):
    query = Query(view=View.SERIES, groups=(group,) if group else (), grain=grain, filters=tuple(conditions))
    result, _ = answered(engine, query)
    kept = [row for row in rows if row["time"] and all(evaluation.matches(row, one) for one in conditions)]
    counted = [0] * result.bucket_count
    for line in result.lines:
        counted = [have + value for have, value in zip(counted, line.values, strict=True)]
    expected = [0] * result.bucket_count
    for row in kept:
        expected[(evaluation.time_us(row) - result.start_us) // result.bucket_us] += 1
    assert counted == expected or not result.lines


def test_a_compared_period_lies_as_far_before(engine, rows):
    result, _ = answered(
        engine, Query(view=View.SERIES, start="03:30", end="2026-11-22 04:00", compare="previous", grain="10 min")
    )
    (line,) = result.lines
    start = evaluation.epoch_us(START)
    expected = [0] * 6
    for row in rows:
        if row["time"]:
            expected[(evaluation.time_us(row) - start) // 600_000_000] += 1
    assert list(line.before) == expected[:3]
    assert list(line.values) == expected[3:]


def test_a_compared_table_holds_both_periods(engine, rows):
    query = Query(view=View.TABLE, start="50%", compare="previous", groups=("rank",))
    result, _ = answered(engine, query)
    bound = bound_of(engine, query)
    for group in result.groups:
        for values, period in ((group.values, bound.period), (group.before, bound.period.moved(-bound.compare_us))):
            inside = [
                row for row in rows
                if row["rank"] == group.key[0] and row["time"]
                and period.start_us <= evaluation.time_us(row) < period.end_us
            ]  # fmt: skip
            assert values[0] == len(inside)


def test_conditions_on_groups(engine, rows):
    condition = Having(Measure(Aggregate.COUNT), Op.GE, "45")
    result, _ = answered(engine, Query(view=View.TABLE, groups=("kind",), having=(condition,)))
    expected = {key: len(found) for key, found in evaluation.grouped(rows, ("kind",)).items() if len(found) >= 45}
    assert {group.key: group.values[0] for group in result.groups} == expected
    assert result.other.values[0] == ROWS - sum(expected.values())


def test_a_share_is_of_all_rows(engine):
    result, _ = answered(engine, Query(view=View.TABLE, groups=("rank",), measures=(Measure(Aggregate.SHARE),)))
    assert sum(group.values[0] for group in result.groups) == pytest.approx(1)


def test_a_distribution_counts_every_finite_value(engine, rows):
    result, _ = answered(engine, Query(view=View.DISTRIBUTION, value_column="dur_us"))
    assert sum(result.lines[0].values) + result.unbinned == ROWS
    assert result.unbinned == sum(row["dur_us"] is None for row in rows)
    found = [row["dur_us"] for row in rows if row["dur_us"] is not None]
    assert (result.summary.low, result.summary.high) == (min(found), max(found))
    for at, edge in enumerate(result.edges[1:]):
        low = result.edges[at]
        assert result.lines[0].values[at] == sum(
            low <= value < edge or (value == edge == result.edges[-1]) for value in found
        )


def test_a_logarithmic_distribution_has_only_what_is_above_zero(engine, rows):
    query, _ = parse_query("view=distribution&x=dur_us&scale=log")
    result, _ = answered(engine, query)
    assert sum(result.lines[0].values) == sum((row["dur_us"] or 0) > 0 for row in rows)


def test_derived_columns_are_used_like_others(engine, rows):
    derived = Derived("ms", "round(dur_us / 1000)")
    query = Query(view=View.TABLE, derived=(derived,), groups=("ms",), filters=(Filter("ms", Op.GT, ("10",)),))
    result, _ = answered(engine, replace(query, limits=((View.TABLE, 5_000),)))
    kept = [row for row in rows if row["dur_us"] is not None and row["dur_us"] / 1000 > 10.5]
    assert sum(group.values[0] for group in result.groups) == pytest.approx(len(kept), abs=1)
    assert all(group.key[0] > 10 for group in result.groups)


MARK = "zq7"


@settings(max_examples=60)
@given(st.data())
def test_no_text_of_the_user_is_in_the_sql(engine, data):
    hostile = st.sampled_from(["'", '"', "'; DROP TABLE hostile; --", "`", "{0}", "?", "\\", "$$", "/*", "\n"]).map(
        lambda text: f"{MARK}{text}{MARK}"
    )
    name = data.draw(hostile)
    query = Query(
        view=data.draw(st.sampled_from(View)),
        filters=(
            Filter("kind", data.draw(st.sampled_from(Op)), (data.draw(hostile),)),
            Filter(ODD_NAME, Op.CONTAINS, (data.draw(hostile),)),
            Filter(name, Op.EQ, (data.draw(hostile),)),
        ),
        derived=(Derived(name, "concat(kind, '" + data.draw(hostile).replace("'", "''") + "')"),),
        groups=(name, data.draw(hostile)),
        measures=(Measure(Aggregate.DISTINCT, name), Measure(Aggregate.SUM, data.draw(hostile))),
        order=Order(data.draw(hostile)),
        columns=(name,),
        weight=data.draw(hostile),
        after=data.draw(hostile),
        start=data.draw(hostile),
        compare=data.draw(hostile),
        grain=data.draw(hostile),
        value_column=data.draw(hostile),
    )  # fmt: skip
    with engine.session() as session:
        with contextlib.suppress(QueryError):  # a pattern that is none
            compute(bound_of(engine, query), session)
        ran = session.ran
    for one in ran:
        assert MARK not in one.text
        # With the quoted identifiers and our own literals taken out, no quote is left.
        assert not re.search(r"[\"`\\$]", re.sub(r'"(?:[^"]|"")*"', "", one.text))
    assert engine.database.connection.execute("SELECT count(*) FROM hostile").fetchall() == [(ROWS,)]


def test_a_shown_time_finds_its_rows(engine, rows):
    moment = next(row for row in rows if row["time"])
    text = time_text(evaluation.time_us(moment), UTC)
    result, _ = answered(engine, Query(filters=(Filter("time", Op.EQ, (text,)),)))
    assert {sample.time_us for sample in result.samples} == {evaluation.time_us(moment)}


def test_a_pattern_is_matched_and_a_broken_one_is_told(engine, rows):
    result, _ = answered(
        engine, Query(view=View.TABLE, filters=(Filter("kind", Op.MATCHES, ("^for.*d$",)),), groups=("kind",))
    )
    assert {group.key for group in result.groups} == {("forward",), ("Forward",)}
    with pytest.raises(QueryError, match="missing"):
        answered(engine, Query(filters=(Filter("kind", Op.MATCHES, ("(",)),)))


@pytest.mark.parametrize(
    ("query", "parameter", "message"),
    [
        (Query(groups=("nope",)), "g", "no such column"),
        (Query(filters=(Filter("nope", Op.EQ, ("1",)),)), "f", "no column 'nope'"),
        (Query(filters=(Filter("rank", Op.EQ, ("one",)),)), "f", "could not convert"),
        (Query(filters=(Filter("is_ok", Op.EQ, ("maybe",)),)), "f", "neither true nor false"),
        (Query(filters=(Filter("time", Op.GT, ("soon",)),)), "f", "is not a time"),
        (Query(filters=(Filter("kind", Op.EQ, ("a\0b",)),)), "f", "NUL"),
        (Query(measures=(Measure(Aggregate.SUM, "kind"),)), "m", "needs a number"),
        (Query(weight="kind"), "w", "a number is needed"),
        (Query(groups=("rank", "kind", "is_ok", "weight", "time")), "g", "at most 4"),
        (Query(derived=(Derived("rank", "1"),)), "d", "of this name already"),
        (Query(derived=(Derived("twice", "rank *"),)), "d", "expected a value"),
        (Query(start="50%", end="10%"), "to", "holds no time"),
        (Query(compare="maybe"), "cmp", "is not a time"),
        (Query(grain="1 us"), "res", "more than 5000 buckets"),
        (Query(having=(Having(Measure(Aggregate.COUNT), Op.GE, "many"),)), "h", "could not convert"),
        (Query(after="x"), "after", "no page begins here"),
    ],
)
def test_what_does_not_fit_the_table_is_an_issue_at_its_control(engine, query, parameter, message):
    (issue,) = bound_of(engine, query).issues
    assert issue.parameter == parameter
    assert message in issue.message
