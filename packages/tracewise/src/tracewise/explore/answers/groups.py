"""Groups by measures, the rest of them, all of them, and the same in a compared period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracewise.explore import statements
from tracewise.explore.bind import Bound, BoundMeasure, Period
from tracewise.explore.engine import Session
from tracewise.explore.query import Aggregate
from tracewise.explore.results import (
    Cell,
    Group,
    TableResult,
)

HEAVY_ROWS = 2_000_000


def table(bound: Bound, session: Session) -> TableResult:
    groups, count = ranked(bound, session)
    total_row = totals(bound, session, bound.period if bound.restricts_time else None)
    rest = _rest(bound, session, groups, count)
    before = _before(bound, session, groups) if bound.compare_us else {}
    shares = _shares(bound, total_row)
    finished = tuple(Group(group.key, _shared(group.values, shares), before.get(at)) for at, group in enumerate(groups))
    other = Group(None, _shared(rest, shares), before.get(None)) if rest else None
    total_before = None
    if bound.compare_us and bound.period:
        total_before = totals(bound, session, bound.period.moved(-bound.compare_us))
        total_before = _shared(total_before, _shares(bound, total_before))
    return TableResult(finished, other, Group((), _shared(total_row, shares), total_before), count)


def ranked(bound: Bound, session: Session) -> tuple[tuple[Group, ...], int]:
    """The groups to show and how many there are; without group columns one group of all rows."""
    if not bound.groups:
        period = bound.period if bound.restricts_time else None
        return (Group((), totals(bound, session, period)),), 1
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


def totals(bound: Bound, session: Session, period: Period | None) -> tuple[Cell, ...]:
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
    shares = _shares(bound, totals(bound, session, period))
    rows = session.fetch(statements.keyed(bound, keys, None, period))
    return {row[1]: _shared(row[2:], shares) for row in rows}


def _shares(bound: Bound, total: Sequence[Cell]) -> dict[int, Cell]:
    """What the counts of shares are divided by, by the position of the measure."""
    return {at: total[at] for at, measure in enumerate(bound.measures) if measure.aggregate is Aggregate.SHARE}


def _shared(values: Sequence[Cell], shares: dict[int, Cell]) -> tuple[Cell, ...]:
    return tuple(
        (value / shares[at] if shares[at] else None) if at in shares else value for at, value in enumerate(values)
    )
