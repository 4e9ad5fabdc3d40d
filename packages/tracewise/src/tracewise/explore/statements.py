"""The statements of the views: samples, groups by measures, the same over time or bins, and suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewise.explore.bind import Bound, Named, Period, Value
from tracewise.explore.query import Order
from tracewise.explore.sql import (
    Sql,
    cell_sql,
    equals_key,
    join,
    measure_sql,
    number_value,
    quoted,
    sql,
    text_value,
    time_us_sql,
    value_sql,
    where_sql,
)
from tracewise.store.table import Column, Kind, Table, TimeColumn

CELL_CHARACTERS = 4_000  # of a long text in the samples; the rest stays in the database
Key = tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class Bins:
    """Which bucket a row falls in: ``index`` is a whole number or null, from 0 to ``count`` - 1 for those shown."""

    index: Sql
    count: int
    width_us: int = 0  # of a bucket of time


def extent(table: Table, time: TimeColumn) -> Sql:
    """(first, last) time of the whole table in microseconds."""
    column = quoted(time.column.name)
    # min and max of the bare column come from the files' statistics.
    bounds = sql("SELECT min({0}) AS {1}, max({0}) AS b FROM {2}", column, Sql("a"), quoted(table.name))
    low = time_us_sql(TimeColumn(Column("a", time.column.kind, time.column.type), time.unit))
    high = time_us_sql(TimeColumn(Column("b", time.column.kind, time.column.type), time.unit))
    return sql("SELECT {0}, {1} FROM ({2})", low, high, bounds)


def samples(bound: Bound, columns: Sequence[Named], newest_first: Period | None) -> Sql:
    """Rows with (row key, time, cells ...), newest first, or in the order asked for, at most one more than the limit.

    ``newest_first`` restricts the rows to a time; the caller widens it until there are enough.
    """
    key, table = quoted(bound.table.row_key.name), quoted(bound.table.name)
    time = time_us_sql(bound.time) if bound.time else Sql("NULL")
    cells = [_short(named) for named in columns]
    order = _sample_order(bound, key, time)
    after = [_after(bound, key)] if bound.after and not bound.order else []
    return sql(
        "SELECT {0} AS row_key, {1} AS row_time{2} FROM {3} {4} ORDER BY {5} LIMIT {6}",
        key,
        time,
        join("", [sql(", {0}", cell) for cell in cells]),
        table,
        where_sql(bound, newest_first, *after),
        order,
        Sql("?", (bound.query.limit + 1,)),
    )


def one_row(table: Table, columns: Sequence[Named], row_key: int) -> Sql:
    """The whole cells of one row."""
    cells = join(", ", [cell_sql(named) for named in columns])
    return sql(
        "SELECT {0} FROM {1} WHERE {2} = {3}",
        cells,
        quoted(table.name),
        quoted(table.row_key.name),
        Sql("?", (row_key,)),
    )


def ranking(bound: Bound, limit: int) -> Sql:
    """(number of groups, keys ..., measures ...) of the first ``limit`` groups in the order asked for."""
    keys = [cell_sql(group) for group in bound.groups]
    length = bound.period.length_us if bound.period else 0
    measures = [measure_sql(measure, bound, length) for measure in bound.measures]
    selected = [*_aliased("g", keys), *_aliased("m", measures)]
    positions = join(", ", [Sql(str(2 + number)) for number in range(len(keys))])
    having = [
        filter_sql_of_measure(measure_sql(one.measure, bound, length), one.op.value, one.value) for one in bound.having
    ]
    return sql(
        "SELECT count(*) OVER () AS groups, {0} FROM {1} {2} GROUP BY {3} {4} ORDER BY {5} LIMIT {6}",
        join(", ", selected),
        quoted(bound.table.name),
        where_sql(bound),
        positions,
        sql("HAVING {0}", join(" AND ", having)) if having else Sql(""),
        _group_order(bound),
        Sql("?", (limit,)),
    )


def keyed(bound: Bound, keys: Sequence[Key], bins: Bins | None, period: Period | None) -> Sql:
    """(bin, index of the key, measures ...): null is the index of the rest, and the bin without ``bins``.

    Without group columns all rows have index 0.
    """
    length = bins.width_us if bins and bins.width_us else period.length_us if period else 0
    measures = [measure_sql(measure, bound, length) for measure in bound.measures]
    table, index = quoted(bound.table.name), Sql("0")
    if bound.groups and keys:
        columns = [Sql(f"k{number}") for number in range(len(bound.groups))]
        rows = [sql("({0}, {1})", _key_row(bound.groups, key), Sql(str(position))) for position, key in enumerate(keys)]
        matches = [
            sql("{0} IS NOT DISTINCT FROM {1}", value_sql(group), column)
            for group, column in zip(bound.groups, columns, strict=True)
        ]
        table = sql(
            "{0} LEFT JOIN (VALUES {1}) AS shown({2}, position) ON {3}",
            table,
            join(", ", rows),
            join(", ", columns),
            join(" AND ", matches),
        )
        index = Sql("shown.position")
    elif bound.groups:
        index = Sql("NULL")
    bin_index = bins.index if bins else Sql("NULL")
    return sql(
        "SELECT {0} AS bin, {1} AS series, {2} FROM {3} {4} GROUP BY 1, 2",
        bin_index,
        index,
        join(", ", _aliased("m", measures)),
        table,
        where_sql(bound, period),
    )


def totals(bound: Bound, period: Period | None) -> Sql:
    """(measures ...) over all rows."""
    length = period.length_us if period else 0
    measures = [measure_sql(measure, bound, length) for measure in bound.measures]
    return sql("SELECT {0} FROM {1} {2}", join(", ", measures), quoted(bound.table.name), where_sql(bound, period))


def time_bins(bound: Bound, before_us: int = 0) -> Bins:
    """Buckets of time over the period, counted from the one that holds its start.

    Of rows that lie ``before_us`` earlier if that is given, so that a compared row has the number of its counterpart.
    """
    assert bound.time is not None, "a table without times has no series"
    assert bound.period is not None, "a table with times has a period"
    origin = bucket_start(bound.period.start_us, bound.bucket_us)
    index = sql(
        "(({0} - {1}) // {2})",
        time_us_sql(bound.time),
        Sql("CAST(? AS BIGINT)", (origin - before_us,)),
        Sql("CAST(? AS BIGINT)", (bound.bucket_us,)),
    )
    return Bins(index, -((origin - bound.period.end_us) // bound.bucket_us), bound.bucket_us)


def bucket_start(time_us: int, width_us: int) -> int:
    return time_us // width_us * width_us


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def summary(bound: Bound, column: Named) -> Sql:
    """(rows, finite values, min, max, mean, standard deviation, smallest above zero, quantiles) of a column."""
    value = sql("CAST({0} AS DOUBLE)", value_sql(column))
    finite = sql("CASE WHEN isfinite({0}) THEN {0} END", value)
    return sql(
        "SELECT count(*), count(v), min(v), max(v), avg(v), stddev_samp(v), min(v) FILTER (WHERE v > 0), "
        f"quantile_cont(v, {list(QUANTILES)}) FROM (SELECT {{0}} AS v FROM {{1}} {{2}})",
        finite,
        quoted(bound.table.name),
        where_sql(bound),
    )


def linear_bins(column: Named, low: float, width: float, count: int) -> Bins:
    value = sql("CAST({0} AS DOUBLE)", value_sql(column))
    return _number_bins(value, low, width, count)


def log_bins(column: Named, low: float, width: float, count: int) -> Bins:
    """Bins of equal width in the logarithm to base 10; values of zero and below have no bin."""
    value = sql("CAST({0} AS DOUBLE)", value_sql(column))
    return _number_bins(sql("CASE WHEN {0} > 0 THEN log10({0}) END", value), low, width, count)


def _number_bins(value: Sql, low: float, width: float, count: int) -> Bins:
    # The largest value lies on the last edge and belongs to the last bin.
    index = sql(
        "CASE WHEN isfinite({0}) THEN greatest(0, least({1}, CAST(floor(({0} - {2}) / {3}) AS BIGINT))) END",
        value,
        Sql(str(count - 1)),
        Sql("CAST(? AS DOUBLE)", (low,)),
        Sql("CAST(? AS DOUBLE)", (width,)),
    )
    return Bins(index, count)


def suggestions(bound: Bound, column: Named, prefix: str, limit: int) -> Sql:
    """(value, rows) of the most frequent values of a column that contain ``prefix``."""
    text = sql("CAST({0} AS VARCHAR)", value_sql(column))
    contains = [sql("contains(lower({0}), lower({1}))", text, text_value(prefix))] if prefix else []
    return sql(
        "SELECT {0} AS value, count(*) AS rows FROM {1} {2} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {3}",
        cell_sql(column),
        quoted(bound.table.name),
        where_sql(bound, None, *contains),
        Sql("?", (limit,)),
    )


def filter_sql_of_measure(measure: Sql, op: str, value: float) -> Sql:
    marks = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    return sql(f"({{0}} {marks[op]} {{1}})", measure, number_value(value))


def _aliased(letter: str, values: Sequence[Sql]) -> list[Sql]:
    return [sql(f"{{0}} AS {letter}{number}", value) for number, value in enumerate(values)]


def _key_row(groups: Sequence[Named], key: Key) -> Sql:
    return join(", ", [equals_key(group, value) for group, value in zip(groups, key, strict=True)])


def _group_order(bound: Bound) -> Sql:
    """The measure or group asked for, else the first measure; then the keys, so that equal ones always come alike."""
    order = bound.order or Order(str(bound.measures[0]))
    names = {group.name: f"g{number}" for number, group in enumerate(bound.groups)}
    names |= {str(measure): f"m{number}" for number, measure in enumerate(bound.measures)}
    direction = "DESC" if order.descending else "ASC"
    keys = "".join(f", g{number} ASC NULLS LAST" for number in range(len(bound.groups)))
    return Sql(f"{names[order.key]} {direction} NULLS LAST{keys}")


def _sample_order(bound: Bound, key: Sql, time: Sql) -> Sql:
    if bound.order and (named := bound.named(bound.order.key)):
        direction = Sql("DESC" if bound.order.descending else "ASC")
        return sql("{0} {1} NULLS LAST, {2} DESC", value_sql(named), direction, key)
    return sql("row_time DESC NULLS LAST, {0} DESC", key) if bound.time else sql("{0} DESC", key)


def _after(bound: Bound, key: Sql) -> Sql:
    """Rows after the last one of the page before, in the order of time and row key."""
    assert bound.after is not None, "only asked for with a page before"
    time_us, row_key = bound.after
    key_before = sql("{0} < {1}", key, Sql("CAST(? AS BIGINT)", (row_key,)))
    if bound.time is None:
        return sql("({0})", key_before)
    time = time_us_sql(bound.time)
    moment = Sql("CAST(? AS BIGINT)", (time_us,))
    return sql("({0} < {1} OR ({0} = {1} AND {2}) OR {0} IS NULL)", time, moment, key_before)


def _short(named: Named) -> Sql:
    cell = cell_sql(named)
    return sql(f"left({{0}}, {CELL_CHARACTERS})", cell) if named.kind in (Kind.TEXT, Kind.NESTED) else cell
