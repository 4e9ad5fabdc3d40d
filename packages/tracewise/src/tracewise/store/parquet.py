"""The tables of trace logs as a folder of Parquet files that other engines read.

    OUT/schema.json                          tables, columns, types and meanings, with the version of the schema
    OUT/events/run=0/part-00000.parquet      one folder a table, one a run as Hive names it, parts of a million rows

``run`` is told by the folder and not by the files, as Spark, Trino, ClickHouse and DuckDB expect of such folders. Rows
of a rank lie together, so that the statistics of a file tell whether a rank is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracewise.store.arrow import arrow_schema
from tracewise.store.load import Batch
from tracewise.tables.schema import SCHEMA_VERSION, TABLES

PART_ROWS = 1_000_000
PARTITION = "run"


def write_parquet(folder: Path, batches: Iterable[Batch], tables: Iterable[str]) -> dict[str, int]:
    """Write ``tables``; the number of rows of each. FileExistsError if the folder holds anything."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder}: is not empty; name a new folder, or empty it first")
    names = list(tables)
    (folder / "schema.json").write_text(json.dumps(schema_json(names), indent=2) + "\n")
    written = dict.fromkeys(names, 0)
    parts: dict[tuple[str, int], _Parts] = {}
    try:
        for batch in batches:
            key = (batch.table, batch.run)
            if key not in parts:
                parts[key] = _Parts(folder / batch.table / f"{PARTITION}={batch.run}", batch.table)
            parts[key].write(batch.rows)
            written[batch.table] += batch.rows.num_rows
    finally:
        for part in parts.values():
            part.close()
    return written


def schema_json(tables: Iterable[str]) -> dict[str, Any]:
    """What the columns mean, for those who read the files without tracewise."""
    return {
        "schema_version": SCHEMA_VERSION,
        "partition": PARTITION,
        "tables": {
            name: {
                "meaning": TABLES[name].meaning,
                "columns": [
                    {"name": column.name, "type": column.type, "meaning": column.meaning}
                    for column in TABLES[name].columns
                ],
            }
            for name in tables
        },
    }


class _Parts:
    """The files of one table and run, the next begun when one is full."""

    def __init__(self, folder: Path, table: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.schema = folder, arrow_schema(TABLES[table], (PARTITION,))
        self.count = self.rows = 0
        self.writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        if self.writer is None:
            path = self.folder / f"part-{self.count:05d}.parquet"
            self.writer = pq.ParquetWriter(path, self.schema, compression="zstd")
            self.count, self.rows = self.count + 1, 0
        self.writer.write_table(rows.drop_columns([PARTITION]).cast(self.schema))
        self.rows += rows.num_rows
        if self.rows >= PART_ROWS:
            self.close()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
