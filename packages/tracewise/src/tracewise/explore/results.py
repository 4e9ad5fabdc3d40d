"""What the views show: rows, groups by measures, series over time, distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tracewise.explore.bind import BoundMeasure, Named
from tracewise.explore.statements import Key

Cell: TypeAlias = Any


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
