"""Values as the pages show them: numbers, units by the name of the column, times; and as a filter takes them back."""

from __future__ import annotations

import math
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from tracewise.explore.bind import BoundMeasure, Named
from tracewise.explore.query import Aggregate, Filter, Op
from tracewise.explore.timeparse import SECOND_US, time_text
from tracewise.store.table import Kind

NULL_TEXT = "null"
EMPTY_TEXT = "(empty)"
_DURATION_STEPS = ((86_400e6, "d"), (3_600e6, "h"), (60e6, "min"), (1e6, "s"), (1e3, "ms"), (1.0, "µs"))
_US_OF_SUFFIX = {"_ns": 1e-3, "_us": 1.0, "_ms": 1e3, "_s": 1e6, "_seconds": 1e6}
_BYTE_STEPS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def cell_text(value: Any, kind: Kind, zone: tzinfo) -> str:
    """A value of a row or the key of a group, in full."""
    if value is None:
        return NULL_TEXT
    if kind is Kind.TIME:
        return time_text(int(value), zone)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def key_text(value: Any, kind: Kind, zone: tzinfo) -> str:
    """As ``cell_text``, with a word for the empty text."""
    return EMPTY_TEXT if value == "" else cell_text(value, kind, zone)


def equality(column: Named, value: Any, zone: tzinfo, *, negated: bool = False) -> Filter:
    """The filter that holds where the column has this value; with case, as the value is known."""
    if value is None:
        return Filter(column.name, Op.NOT_NULL if negated else Op.NULL)
    text = cell_text(value, column.kind, zone)
    return Filter(column.name, Op.NE if negated else Op.EQ, (text,), cased=column.kind in (Kind.TEXT, Kind.NESTED))


def measure_text(value: Any, measure: BoundMeasure, zone: tzinfo) -> str:
    """A measure with the unit that its column's name tells."""
    if value is None:
        return "–"
    aggregate, column = measure.aggregate, measure.column
    if aggregate is Aggregate.SHARE:
        return f"{value:.1%}"
    if aggregate is Aggregate.RATE:
        return f"{number_text(value)}/s"
    if column is None or aggregate is Aggregate.DISTINCT:
        return number_text(value)
    return time_text(int(value), zone) if column.kind is Kind.TIME else quantity_text(value, column.name)


def quantity_text(value: Any, name: str) -> str:
    """A number of a column with this name: as a duration or a size where the name ends in such a unit."""
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    for suffix, factor in _US_OF_SUFFIX.items():
        if name.endswith(suffix):
            return duration_text(number * factor)
    if name.endswith("bytes"):
        return next(
            (f"{number / size:.3g} {unit}" for size, unit in _BYTE_STEPS if abs(number) >= size), f"{number:g} B"
        )
    return number_text(value)


def duration_text(us: float) -> str:
    """Three digits and a unit: 41.2 s."""
    if us == 0:
        return "0"
    return next((f"{us / size:.3g} {unit}" for size, unit in _DURATION_STEPS if abs(us) >= size), f"{us * 1e3:.3g} ns")


def grain_text(us: int) -> str:
    """A width of a bucket, exactly: 30 s, 1 h."""
    for size, unit in _DURATION_STEPS:
        if us >= size and us % size == 0:
            return f"{us // int(size)} {unit}"
    return f"{us} µs"


def number_text(value: Any) -> str:
    """Whole numbers in full with separators, others with four digits."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        if not (value.is_integer() and abs(value) < 1e15):
            return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{int(value):,}"


def compact_text(value: float) -> str:
    """A round number of an axis: 150k, 2.5M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def change_text(now: Any, before: Any) -> str:
    """How much a measure changed: +12 %, or new or gone."""
    if before in (None, 0) or now is None:
        return "" if now == before else "new" if before in (None, 0) else "gone"
    change = (float(now) - float(before)) / abs(float(before))
    return f"{change:+.1%}" if math.isfinite(change) else ""


def seconds_text(seconds: float) -> str:
    return duration_text(seconds * SECOND_US)
