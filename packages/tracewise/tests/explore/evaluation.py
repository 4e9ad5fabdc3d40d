"""A second answer to every query, in plain Python over a list of rows, to compare the database's with."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from tracewise.explore.query import Aggregate, Filter, Measure, Op
from tracewise.explore.timeparse import epoch_us

Row = dict[str, Any]
NUMERIC = {"rank", "dur_us", "weight"}


def matches(row: Row, condition: Filter) -> bool:
    """Whether a row satisfies a filter; no value satisfies nothing but a negation."""
    value = row[condition.column]
    match condition.op:
        case Op.NULL:
            return value is None
        case Op.NOT_NULL:
            return value is not None
        case Op.EMPTY:
            return _text(value) == ""
        case Op.NOT_EMPTY:
            return _text(value) != ""
        case Op.NE:
            return not any(_holds(value, Op.EQ, wanted, condition) for wanted in condition.values)
        case Op.EXCLUDES:
            return not any(_holds(value, Op.CONTAINS, wanted, condition) for wanted in condition.values)
        case op:
            return any(_holds(value, op, wanted, condition) for wanted in condition.values)


def _holds(value: Any, op: Op, wanted: str, condition: Filter) -> bool:
    if value is None:
        return False
    if op in (Op.CONTAINS, Op.STARTS):
        left, right = _cased(_text(value), condition), _cased(wanted, condition)
        return right in left if op is Op.CONTAINS else left.startswith(right)
    other: Any = float(wanted) if condition.column in NUMERIC else wanted
    if condition.column not in NUMERIC:
        value, other = _cased(value, condition), _cased(wanted, condition)
    compare = {
        Op.EQ: value == other,
        Op.LT: value < other,
        Op.LE: value <= other,
        Op.GT: value > other,
        Op.GE: value >= other,
    }
    return compare[op]


def _cased(text: str, condition: Filter) -> str:
    return text if condition.cased else text.lower()


def _text(value: Any) -> str:
    """A value as the database writes it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def time_us(row: Row) -> int | None:
    moment: datetime | None = row["time"]
    return None if moment is None else epoch_us(moment.replace(tzinfo=UTC))


def grouped(rows: list[Row], groups: tuple[str, ...]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(time_us(row) if name == "time" else row[name] for name in groups)].append(row)
    return dict(found)


def measure(rows: list[Row], wanted: Measure, weight: str = "") -> Any:
    """The value of a measure over rows."""
    count = sum(row[weight] for row in rows) if weight else len(rows)
    if wanted.column is None:
        return count
    found = [row[wanted.column] for row in rows if row[wanted.column] is not None]
    if wanted.aggregate is Aggregate.DISTINCT:
        return len(set(found))
    if not found:
        return None
    if quantile := wanted.aggregate.quantile:
        return _quantile(sorted(found), quantile)
    weights = [row[weight] for row in rows if row[wanted.column] is not None] if weight else [1] * len(found)
    total = math.fsum(value * factor for value, factor in zip(found, weights, strict=True))
    match wanted.aggregate:
        case Aggregate.SUM:
            return total
        case Aggregate.AVG:
            return total / sum(weights)
        case Aggregate.MIN:
            return min(found)
        case Aggregate.MAX:
            return max(found)
        case Aggregate.STDDEV:
            return statistics.stdev(found) if len(found) > 1 else None
        case other:
            raise AssertionError(f"no answer for the measure {other}")


def _quantile(values: list[float], share: float) -> float:
    """Between the two nearest values, in proportion."""
    at = (len(values) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)
