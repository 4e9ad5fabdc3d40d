"""The Query value: everything that the explorer's controls say, as typed, not yet checked against a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Member = TypeVar("Member", bound=StrEnum)


def member(known: type[Member], value: str) -> Member:
    """The member of ``known`` with this value; ValueError lists them all."""
    try:
        return known(value)
    except ValueError:
        raise ValueError(f"{value!r} is none of {', '.join(known)}") from None


class View(StrEnum):
    SAMPLES = "samples"
    TABLE = "table"
    SERIES = "series"
    DISTRIBUTION = "distribution"


class Op(StrEnum):
    """What a filter asks of a column."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    CONTAINS = "contains"
    EXCLUDES = "excludes"
    MATCHES = "matches"
    STARTS = "starts"
    EMPTY = "empty"
    NOT_EMPTY = "notempty"
    NULL = "null"
    NOT_NULL = "notnull"

    @property
    def label(self) -> str:
        return OP_LABELS[self]

    @property
    def takes_values(self) -> bool:
        return self not in (Op.EMPTY, Op.NOT_EMPTY, Op.NULL, Op.NOT_NULL)


OP_LABELS: dict[Op, str] = {
    Op.EQ: "=",
    Op.NE: "≠",
    Op.LT: "<",
    Op.LE: "≤",
    Op.GT: ">",
    Op.GE: "≥",
    Op.CONTAINS: "contains",
    Op.EXCLUDES: "does not contain",
    Op.MATCHES: "matches",
    Op.STARTS: "starts with",
    Op.EMPTY: "is empty",
    Op.NOT_EMPTY: "is not empty",
    Op.NULL: "is null",
    Op.NOT_NULL: "is not null",
}


class Aggregate(StrEnum):
    """How a measure sums up the rows of a group."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    DISTINCT = "distinct"
    P5 = "p5"
    P25 = "p25"
    P50 = "p50"
    P75 = "p75"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    P99_9 = "p99.9"
    STDDEV = "stddev"
    RATE = "rate"
    SHARE = "share"

    @property
    def takes_column(self) -> bool:
        return self not in (Aggregate.COUNT, Aggregate.RATE, Aggregate.SHARE)

    @property
    def quantile(self) -> float | None:
        """The fraction of a percentile, None of another aggregate."""
        return round(float(self.value[1:]) / 100, 6) if self.value[0] == "p" else None

    @property
    def is_additive(self) -> bool:
        """Whether the values of two groups of rows add up to the value of both, so that nothing is worth zero."""
        return self in (Aggregate.COUNT, Aggregate.SUM, Aggregate.RATE, Aggregate.SHARE)


class Fill(StrEnum):
    """What stands in a bucket without rows."""

    ZERO = "zero"
    CONNECT = "connect"
    BLANK = "blank"


class Shape(StrEnum):
    """How a time series is drawn."""

    LINES = "lines"
    AREA = "area"
    BARS = "bars"


class Scale(StrEnum):
    """How the bins of a distribution grow."""

    LINEAR = "linear"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows where ``column`` satisfies ``op`` with any of ``values``; text is compared without case unless ``cased``."""

    column: str
    op: Op
    values: tuple[str, ...] = ()
    cased: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    aggregate: Aggregate
    column: str | None = None

    def __str__(self) -> str:
        return self.aggregate.value if self.column is None else f"{self.aggregate.value}({self.column})"


@dataclass(frozen=True, slots=True)
class Derived:
    """A column computed from others, by an expression in the language of ``expr``."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Order:
    """``key`` is a column or the text of a measure."""

    key: str
    descending: bool = True


@dataclass(frozen=True, slots=True)
class Having:
    """Only groups whose measure satisfies the comparison."""

    measure: Measure
    op: Op
    value: str


COUNT = Measure(Aggregate.COUNT)
COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
DEFAULT_LIMIT: dict[View, int] = {View.SAMPLES: 100, View.TABLE: 50, View.SERIES: 10, View.DISTRIBUTION: 6}
MAX_LIMIT: dict[View, int] = {View.SAMPLES: 1_000, View.TABLE: 5_000, View.SERIES: 20, View.DISTRIBUTION: 20}
MAX_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Query:
    """One state of the controls. Texts are what the user typed; an empty text is the default."""

    view: View = View.SAMPLES
    start: str = ""
    end: str = ""
    zone: str = "log"
    time_column: str = ""
    time_unit: str = ""
    compare: str = ""
    filters: tuple[Filter, ...] = ()
    groups: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()  # none said: how many rows
    derived: tuple[Derived, ...] = ()
    order: Order | None = None
    having: tuple[Having, ...] = ()
    limits: tuple[tuple[View, int], ...] = ()
    other: bool = True
    grain: str = "auto"
    fill: Fill = Fill.ZERO
    shape: Shape = Shape.LINES
    scale: Scale = Scale.LINEAR
    value_column: str = ""
    weight: str = ""
    columns: tuple[str, ...] = ()
    after: str = ""
    unknown: tuple[tuple[str, str], ...] = ()

    @property
    def limit(self) -> int:
        """Rows or series of the current view; each view remembers its own."""
        return dict(self.limits).get(self.view, DEFAULT_LIMIT[self.view])
