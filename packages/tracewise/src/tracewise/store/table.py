"""Tables as the explorer sees them: columns with kinds, the time column and its unit. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can be asked of a column."""

    NUMBER = "number"
    TEXT = "text"
    TIME = "time"
    BOOL = "bool"
    NESTED = "nested"  # lists, structs, JSON, bytes: shown, and compared by their text


class TimeUnit(StrEnum):
    """How a time column counts; the numeric ones are since the epoch."""

    TIMESTAMP = "timestamp"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


# Units of a numeric time column in one microsecond, as (numerator, denominator).
UNITS_PER_US: dict[TimeUnit, tuple[int, int]] = {
    TimeUnit.SECONDS: (1, 1_000_000),
    TimeUnit.MILLISECONDS: (1, 1_000),
    TimeUnit.MICROSECONDS: (1, 1),
    TimeUnit.NANOSECONDS: (1_000, 1),
}

INTEGER_TYPES = frozenset(
    f"{sign}{width}" for sign in ("", "U") for width in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
FLOAT_TYPES = frozenset({"FLOAT", "DOUBLE"})
TEXT_TYPES = frozenset({"VARCHAR", "UUID"})
TIME_TYPES = frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE"})


def kind_of(duckdb_type: str) -> Kind:
    """The kind of a column, from DuckDB's name of its type; whatever is not known is compared by its text."""
    if duckdb_type in INTEGER_TYPES or duckdb_type in FLOAT_TYPES or duckdb_type.startswith("DECIMAL("):
        # DECIMAL(10,2)[] is a list
        return Kind.NESTED if duckdb_type.endswith("]") else Kind.NUMBER
    if duckdb_type in TEXT_TYPES or (duckdb_type.startswith("ENUM(") and duckdb_type.endswith(")")):
        return Kind.TEXT
    if duckdb_type in TIME_TYPES:
        return Kind.TIME
    return Kind.BOOL if duckdb_type == "BOOLEAN" else Kind.NESTED


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name as the file spells it, its kind, and DuckDB's name of its type."""

    name: str
    kind: Kind
    type: str

    @property
    def is_integer(self) -> bool:
        return self.type in INTEGER_TYPES


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The column that places a row in time."""

    column: Column
    unit: TimeUnit


@dataclass(frozen=True, slots=True)
class Table:
    """One table. ``row_key`` is a hidden column with a different number in each row; the span is None without times."""

    name: str
    columns: tuple[Column, ...]
    row_key: Column
    rows: int
    time: TimeColumn | None = None
    first_us: int | None = None
    last_us: int | None = None

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def of_kind(self, *kinds: Kind) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind in kinds)
