"""Rows of the tables of ``tables.schema`` as Arrow batches, typed as the schema says whatever the rows hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from tracewise.tables.schema import SCHEMA_VERSION, Column, Table

BATCH_ROWS = 50_000
ARROW_TYPES = {
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}
_INT64 = range(-(2**63), 2**63)


def arrow_schema(table: Table, leave_out: Iterable[str] = ()) -> pa.Schema:
    """The Arrow schema of a table; meanings and the version stand in the metadata."""
    hidden = set(leave_out)
    fields = [
        pa.field(column.name, ARROW_TYPES[column.type], metadata={"meaning": column.meaning})
        for column in table.columns
        if column.name not in hidden
    ]
    return pa.schema(fields, metadata={"tracewise_table": table.name, "tracewise_schema_version": str(SCHEMA_VERSION)})


def batches(table: Table, rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.Table]:
    """The rows in tables of at most ``BATCH_ROWS``."""
    schema, source = arrow_schema(table), iter(rows)
    while chunk := list(islice(source, BATCH_ROWS)):
        columns = zip(*chunk, strict=True)
        arrays = [_array(column, values) for column, values in zip(table.columns, columns, strict=True)]
        yield pa.table(arrays, schema=schema)


def _array(column: Column, values: tuple[Any, ...]) -> pa.Array:
    kind = ARROW_TYPES[column.type]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return pa.array([_fitting(value, column.type) for value in values], kind)


def _fitting(value: Any, kind: str) -> Any:
    """A value that its column can hold: numbers over 64 bits are lost, halves of surrogate pairs replaced."""
    if isinstance(value, int) and kind in ("integer", "time"):
        return value if value in _INT64 else None
    if isinstance(value, int) and kind == "real":
        return float(value) if abs(value) < 2**1000 else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value
