"""Rows by the size of a number, in bins of equal or of growing width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tracewise.explore import statements
from tracewise.explore.answers.groups import ranked
from tracewise.explore.answers.series import by_line
from tracewise.explore.bind import Bound, BoundMeasure, Named
from tracewise.explore.engine import Session
from tracewise.explore.query import Aggregate, Scale
from tracewise.explore.results import (
    DistributionResult,
    Group,
    Line,
    NothingToShow,
    Summary,
)
from tracewise.explore.statements import Bins
from tracewise.store.table import Kind

DISTRIBUTION_BINS = 60


def distribution(bound: Bound, session: Session) -> DistributionResult:
    column = bound.value_column or next((one for one in bound.names if _is_measurable(one, bound)), None)
    if column is None:
        raise NothingToShow("this table has no numeric column; derive one, for example length(name)")
    summary = _summary(session.fetch(statements.summary(bound, column))[0])
    edges, bins = _bins(column, summary, bound.query.scale)
    if bins is None:
        return DistributionResult(column, summary, (), (), summary.rows)
    groups, _ = ranked(bound, session) if bound.groups else ((Group((), ()),), 1)
    keys = [group.key for group in groups if group.key is not None]
    # Bars are numbers of rows, whatever the measures of the other views are.
    counting = BoundMeasure(Aggregate.COUNT, None)
    counts = replace(bound, measures=(counting,))
    period = bound.period if bound.restricts_time else None
    grid, unbinned = by_line(session.fetch(statements.keyed(counts, keys, bins, period)), bins.count)
    shown: list[tuple[int | None, Group]] = [*enumerate(groups)]
    if (None, 0) in grid:
        shown.append((None, Group(None, ())))
    lines = [
        Line(group, counting, sum(filter(None, values)), tuple(value or 0 for value in values))
        for index, group in shown
        if (values := grid.get((index, 0)))
    ]
    return DistributionResult(column, summary, edges, tuple(lines), unbinned)


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
