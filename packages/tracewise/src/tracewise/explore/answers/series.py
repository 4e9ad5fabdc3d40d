"""Measures over time, a line a group, beside those of a compared period."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracewise.explore import statements
from tracewise.explore.answers.groups import ranked
from tracewise.explore.bind import Bound, BoundMeasure, Period
from tracewise.explore.engine import Session
from tracewise.explore.query import Aggregate, Fill
from tracewise.explore.results import (
    Cell,
    Group,
    Line,
    NothingToShow,
    SeriesResult,
)
from tracewise.explore.statements import Bins, Key


def series(bound: Bound, session: Session) -> SeriesResult:
    if bound.time is None or bound.period is None:
        raise NothingToShow("this table has no time column; choose one under Time")
    groups, count = ranked(bound, session)
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


def _grid(
    bound: Bound, session: Session, keys: Sequence[Key], bins: Bins, period: Period
) -> dict[tuple[int | None, int], list[float | None]]:
    """Values by bucket, for each (index of the group, position of the measure)."""
    rows = session.fetch(statements.keyed(bound, keys, bins, period))
    grid, _ = by_line(rows, bins.count)
    shared = {at for at, measure in enumerate(bound.measures) if measure.aggregate is Aggregate.SHARE}
    for at in shared:
        lines = [values for (_, position), values in grid.items() if position == at]
        sums = [sum(filter(None, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            line[:] = [
                value / total if value is not None and total else value for value, total in zip(line, sums, strict=True)
            ]
    return grid


def by_line(
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


def _plain(value: Cell) -> float | None:
    """A number that a chart can place: decimals as floats, infinities and not-a-number as nothing."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
