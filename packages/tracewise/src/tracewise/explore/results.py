"""What the views show: rows, groups by measures, series over time, distributions; computed by a few statements each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tracewise.explore import statements
from tracewise.explore.bind import Bound, BoundMeasure, Named, Period
from tracewise.explore.engine import Session
from tracewise.explore.query import Aggregate, Fill, Scale, View
from tracewise.explore.statements import Bins, Key
from tracewise.store.table import Kind

Cell: TypeAlias = Any
DEFAULT_COLUMNS = 16
DISTRIBUTION_BINS = 60
HEAVY_ROWS = 2_000_000
# The first slice of time that is looked into for the newest rows holds about this many times the rows wanted.
SLICE_FACTOR = 4
SLICE_GROWTH = 16


@dataclass(frozen=True, slots=True)
class Sample:
    row_key: int
    time_us: int | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class SamplesResult:
    columns: tuple[Named, ...]
    samples: tuple[Sample, ...]
    next_page: str  # empty on the last page


@dataclass(frozen=True, slots=True)
class Group:
    """One line of a table or one series: its key, or None of the rest, and its measures now and ``before``."""

    key: Key | None
    values: tuple[Cell, ...]
    before: tuple[Cell, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableResult:
    groups: tuple[Group, ...]
    other: Group | None
    total: Group
    group_count: int


@dataclass(frozen=True, slots=True)
class Line:
    """One series: a measure of a group, one value a bucket; ``before`` is the compared period's."""

    group: Group
    measure: BoundMeasure
    total: Cell
    values: tuple[float | None, ...]
    before: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class SeriesResult:
    start_us: int  # of the first bucket
    bucket_us: int
    lines: tuple[Line, ...]
    group_count: int

    @property
    def bucket_count(self) -> int:
        return len(self.lines[0].values) if self.lines else 0


@dataclass(frozen=True, slots=True)
class Summary:
    rows: int
    finite: int
    low: float | None
    high: float | None
    mean: float | None
    deviation: float | None
    smallest_positive: float | None
    quantiles: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class DistributionResult:
    """``edges`` has one more entry than each line has values; ``unbinned`` rows have no place in any bin."""

    column: Named
    summary: Summary
    edges: tuple[float, ...]
    lines: tuple[Line, ...]
    unbinned: int


Result: TypeAlias = SamplesResult | TableResult | SeriesResult | DistributionResult


class NothingToShow(Exception):
    """A view that lacks something; the message says what to choose."""


def compute(bound: Bound, session: Session) -> Result:
    """The result of the query's view. QueryError and NothingToShow say why there is none."""
    match bound.query.view:
        case View.SAMPLES:
            return samples(bound, session)
        case View.TABLE:
            return table(bound, session)
        case View.SERIES:
            return series(bound, session)
        case View.DISTRIBUTION:
            return distribution(bound, session)


def samples(bound: Bound, session: Session) -> SamplesResult:
    columns = bound.columns or _default_columns(bound)
    limit = bound.query.limit
    rows = _newest(bound, columns, session)
    if not bound.columns:
        columns, rows = _with_values(columns, rows)
    found = tuple(Sample(row[0], row[1], tuple(row[2:])) for row in rows[:limit])
    has_more = len(rows) > limit and not bound.order
    last = found[-1] if found else None
    # A last row without a time ends the paging: rows without one come last and have no order among pages.
    next_page = f"{last.time_us or 0}_{last.row_key}" if has_more and last and _pages(bound, last) else ""
    return SamplesResult(columns, found, next_page)


def table(bound: Bound, session: Session) -> TableResult:
    groups, count = _ranked(bound, session)
    total_row = _totals(bound, session, bound.period if bound.restricts_time else None)
    rest = _rest(bound, session, groups, count)
    before = _before(bound, session, groups) if bound.compare_us else {}
    shares = _shares(bound, total_row)
    finished = tuple(Group(group.key, _shared(group.values, shares), before.get(at)) for at, group in enumerate(groups))
    other = Group(None, _shared(rest, shares), before.get(None)) if rest else None
    total_before = None
    if bound.compare_us and bound.period:
        total_before = _totals(bound, session, bound.period.moved(-bound.compare_us))
        total_before = _shared(total_before, _shares(bound, total_before))
    return TableResult(finished, other, Group((), _shared(total_row, shares), total_before), count)


def series(bound: Bound, session: Session) -> SeriesResult:
    if bound.time is None or bound.period is None:
        raise NothingToShow("this table has no time column; choose one under Time")
    groups, count = _ranked(bound, session)
    keys = [group.key for group in groups if group.key is not None]
    bins = statements.time_bins(bound)
    now = _grid(bound, session, keys, bins, bound.period)
    before: dict[tuple[int | None, int], list[float | None]] = {}
    if bound.compare_us:
        period = bound.period.moved(-bound.compare_us)
        before = _grid(bound, session, keys, statements.time_bins(bound, bound.compare_us), period)
    start = statements.bucket_start(bound.period.start_us, bound.bucket_us)
    shown: list[tuple[int | None, Group]] = list(enumerate(groups))
    if bound.query.other and count > len(groups) and any(series == (None, 0) for series in now):
        shown.append((None, Group(None, ())))
    lines = [
        Line(
            group,
            measure,
            group.values[at] if group.values else _sum(now.get((None, at)), measure),
            _filled(now.get((index, at)), bins.count, measure, bound.query.fill),
            _filled(before.get((index, at)), bins.count, measure, bound.query.fill) if bound.compare_us else None,
        )
        for index, group in shown
        for at, measure in enumerate(bound.measures)
    ]
    return SeriesResult(start, bound.bucket_us, tuple(lines), count)


def distribution(bound: Bound, session: Session) -> DistributionResult:
    column = bound.value_column or next((one for one in bound.names if _is_measurable(one, bound)), None)
    if column is None:
        raise NothingToShow("this table has no numeric column; derive one, for example length(name)")
    summary = _summary(session.fetch(statements.summary(bound, column))[0])
    edges, bins = _bins(column, summary, bound.query.scale)
    if bins is None:
        return DistributionResult(column, summary, (), (), summary.rows)
    groups, _ = _ranked(bound, session) if bound.groups else ((Group((), ()),), 1)
    keys = [group.key for group in groups if group.key is not None]
    # Bars are numbers of rows, whatever the measures of the other views are.
    counting = BoundMeasure(Aggregate.COUNT, None)
    counts = replace(bound, measures=(counting,))
    period = bound.period if bound.restricts_time else None
    grid, unbinned = _grid_and_rest(session.fetch(statements.keyed(counts, keys, bins, period)), bins.count)
    shown: list[tuple[int | None, Group]] = [*enumerate(groups)]
    if (None, 0) in grid:
        shown.append((None, Group(None, ())))
    lines = [
        Line(group, counting, sum(filter(None, values)), tuple(value or 0 for value in values))
        for index, group in shown
        if (values := grid.get((index, 0)))
    ]
    return DistributionResult(column, summary, edges, tuple(lines), unbinned)


def _default_columns(bound: Bound) -> tuple[Named, ...]:
    derived = bound.names[len(bound.table.columns) :]
    return (*bound.names[: min(DEFAULT_COLUMNS, len(bound.table.columns))], *derived)


def _with_values(
    columns: Sequence[Named], rows: Sequence[tuple[Any, ...]]
) -> tuple[tuple[Named, ...], Sequence[tuple[Any, ...]]]:
    """The columns that nobody chose without those that hold nothing in any of the rows."""
    kept = [at for at in range(len(columns)) if any(row[2 + at] is not None for row in rows)]
    if not kept:
        return tuple(columns), rows
    return tuple(columns[at] for at in kept), [(*row[:2], *(row[2 + at] for at in kept)) for row in rows]


def _pages(bound: Bound, last: Sample) -> bool:
    return bound.time is None or last.time_us is not None


def _newest(bound: Bound, columns: Sequence[Named], session: Session) -> Sequence[tuple[Any, ...]]:
    """Rows of the first page or the page after another, the newest first.

    A sort of all rows by time would read every column of every file. So a short time at the end is looked into first,
    which skips all files and row groups before it, and a longer one as long as there are too few rows.
    """
    wanted = bound.query.limit + 1
    if bound.time is None or bound.period is None or bound.order:
        return session.fetch(statements.samples(bound, columns, None))
    period = bound.period
    end = min(period.end_us, bound.after[0] + 1) if bound.after else period.end_us
    length = max(1, period.length_us * wanted * SLICE_FACTOR // max(1, bound.table.rows))
    while end - length > period.start_us:
        rows = session.fetch(statements.samples(bound, columns, Period(end - length, end)))
        if len(rows) >= wanted:
            return rows
        length *= SLICE_GROWTH
    return session.fetch(statements.samples(bound, columns, None))


def _ranked(bound: Bound, session: Session) -> tuple[tuple[Group, ...], int]:
    """The groups to show and how many there are; without group columns one group of all rows."""
    if not bound.groups:
        period = bound.period if bound.restricts_time else None
        return (Group((), _totals(bound, session, period)),), 1
    rows = session.fetch(statements.ranking(bound, bound.query.limit))
    width = len(bound.groups)
    groups = tuple(Group(tuple(row[1 : 1 + width]), tuple(row[1 + width :])) for row in rows)
    return groups, rows[0][0] if rows else 0


def _rest(bound: Bound, session: Session, groups: Sequence[Group], count: int) -> tuple[Cell, ...] | None:
    """The measures over all rows of the groups that are not shown."""
    if not bound.groups or not bound.query.other or (count <= len(groups) and not bound.having):
        return None
    keys = [group.key for group in groups if group.key is not None]
    light = _light(bound)
    rows = session.fetch(statements.keyed(light, keys, None, bound.period if bound.restricts_time else None))
    return next((_in_place(row[2:], light, bound) for row in rows if row[1] is None), None)


def _totals(bound: Bound, session: Session, period: Period | None) -> tuple[Cell, ...]:
    """The measures over all rows."""
    light = _light(bound) if bound.groups else bound
    return _in_place(session.fetch(statements.totals(light, period))[0], light, bound)


def _light(bound: Bound) -> Bound:
    """The query with measures that hold no value of every row; all of them where there are few rows.

    A percentile of all rows costs as much as those of all groups together, and nobody has asked for it.
    """
    if bound.table.rows <= HEAVY_ROWS:
        return bound
    light = tuple(one for one in bound.measures if not (one.aggregate.quantile or one.aggregate is Aggregate.DISTINCT))
    return replace(bound, measures=light or (BoundMeasure(Aggregate.COUNT, None),))


def _in_place(values: Sequence[Cell], light: Bound, bound: Bound) -> tuple[Cell, ...]:
    """Values of the measures of ``light`` at their places among those of ``bound``."""
    by_measure = dict(zip(light.measures, values, strict=True))
    return tuple(by_measure.get(measure) for measure in bound.measures)


def _before(bound: Bound, session: Session, groups: Sequence[Group]) -> dict[int | None, tuple[Cell, ...]]:
    """The measures in the compared period, by the index of the group, None for the rest."""
    assert bound.period is not None, "a comparison needs a period"
    assert bound.compare_us is not None, "and how far it lies back"
    period = bound.period.moved(-bound.compare_us)
    keys = [group.key for group in groups if group.key is not None]
    shares = _shares(bound, _totals(bound, session, period))
    rows = session.fetch(statements.keyed(bound, keys, None, period))
    return {row[1]: _shared(row[2:], shares) for row in rows}


def _shares(bound: Bound, total: Sequence[Cell]) -> dict[int, Cell]:
    """What the counts of shares are divided by, by the position of the measure."""
    return {at: total[at] for at, measure in enumerate(bound.measures) if measure.aggregate is Aggregate.SHARE}


def _shared(values: Sequence[Cell], shares: dict[int, Cell]) -> tuple[Cell, ...]:
    return tuple(
        (value / shares[at] if shares[at] else None) if at in shares else value for at, value in enumerate(values)
    )


def _grid(
    bound: Bound, session: Session, keys: Sequence[Key], bins: Bins, period: Period
) -> dict[tuple[int | None, int], list[float | None]]:
    """Values by bucket, for each (index of the group, position of the measure)."""
    rows = session.fetch(statements.keyed(bound, keys, bins, period))
    grid, _ = _grid_and_rest(rows, bins.count)
    shared = {at for at, measure in enumerate(bound.measures) if measure.aggregate is Aggregate.SHARE}
    for at in shared:
        lines = [values for (_, position), values in grid.items() if position == at]
        sums = [sum(filter(None, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            line[:] = [
                value / total if value is not None and total else value for value, total in zip(line, sums, strict=True)
            ]
    return grid


def _grid_and_rest(
    rows: Sequence[tuple[Any, ...]], count: int
) -> tuple[dict[tuple[int | None, int], list[float | None]], int]:
    """Rows of ``keyed`` as one list of values a line, and the first measure's sum over rows without a bin."""
    grid: dict[tuple[int | None, int], list[float | None]] = {}
    unbinned = 0
    for bin_index, series_index, *values in rows:
        if bin_index is None or not 0 <= bin_index < count:
            unbinned += values[0] or 0
            continue
        for at, value in enumerate(values):
            grid.setdefault((series_index, at), [None] * count)[bin_index] = _plain(value)
    return grid, unbinned


def _sum(values: Sequence[float | None] | None, measure: BoundMeasure) -> float | None:
    """The total of the series of the rest, where the buckets add up to it."""
    return sum(filter(None, values or ())) if measure.aggregate in (Aggregate.COUNT, Aggregate.SUM) else None


def _filled(
    values: Sequence[float | None] | None, count: int, measure: BoundMeasure, fill: Fill
) -> tuple[float | None, ...]:
    """Zero stands only where nothing is worth zero: a mean of no rows is unknown."""
    found = list(values or [None] * count)
    if fill is Fill.ZERO and measure.aggregate.is_additive:
        return tuple(0 if value is None else value for value in found)
    return tuple(found)


def _is_measurable(named: Named, bound: Bound) -> bool:
    return named.kind is Kind.NUMBER and not (bound.time and named.name == bound.time.column.name)


def _summary(row: Sequence[Any]) -> Summary:
    rows, finite, low, high, mean, deviation, positive, quantiles = row
    pairs = tuple(zip(statements.QUANTILES, quantiles, strict=True)) if quantiles else ()
    return Summary(rows, finite, low, high, mean, deviation, positive, pairs)


def _bins(column: Named, summary: Summary, scale: Scale) -> tuple[tuple[float, ...], Bins | None]:
    """Edges of bins over the values, and how a row finds its bin; no bins where there is no value to show."""
    low, high = summary.low, summary.high
    if scale is Scale.LOG:
        low = summary.smallest_positive
    if low is None or high is None or high - low == math.inf:
        return (), None
    if scale is Scale.LOG:
        low, high = math.log10(low), math.log10(high)
    count = DISTRIBUTION_BINS if high > low else 1
    width = (high - low) / count or 1.0
    if not width + low > low:
        return (), None  # the values differ by less than floating point can cut in bins
    edges = [low + number * width for number in range(count + 1)]
    if scale is Scale.LOG:
        return tuple(10**edge for edge in edges), statements.log_bins(column, low, width, count)
    return tuple(edges), statements.linear_bins(column, low, width, count)


def _plain(value: Cell) -> float | None:
    """A number that a chart can place: decimals as floats, infinities and not-a-number as nothing."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
