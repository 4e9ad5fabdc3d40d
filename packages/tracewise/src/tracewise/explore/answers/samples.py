"""Samples: rows, the newest first, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewise.explore import statements
from tracewise.explore.bind import Bound, Named, Period
from tracewise.explore.engine import Session
from tracewise.explore.results import (
    Sample,
    SamplesResult,
)

DEFAULT_COLUMNS = 16
# The first slice of time that is looked into for the newest rows holds about this many times the rows wanted.
SLICE_FACTOR = 4
SLICE_GROWTH = 16


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
