"""Files of events that are no traces: Parquet, CSV, JSON lines, SQLite and DuckDB, known by their first bytes.

Parquet and DuckDB are read where they lie; the others are copied, since a scan of their text costs as much each time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa

from tracewise.store.database import Database, identifier, literal

ROW_BITS = 40  # of a row key in many files: the row in its file; the file's number stands above


class Format(StrEnum):
    PARQUET = "Parquet"
    DUCKDB = "DuckDB"
    SQLITE = "SQLite"
    JSON_LINES = "JSON lines"
    CSV = "CSV"


class UnreadableTable(ValueError):
    """A file that holds no table that can be read; the message names it."""


def format_of(path: Path, name: str = "") -> Format | None:
    """What a file holds by its first bytes; CSV only where its name says so, None of anything else.

    ``name`` is the one that the file is shown by, where it was unpacked.
    """
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.startswith(b"SQLite format 3\0"):
        return Format.SQLITE
    if head[8:12] == b"DUCK":
        return Format.DUCKDB
    if _is_json_line(head.lstrip()):
        return Format.JSON_LINES
    plain = (name or path.name).lower().removesuffix(".gz")
    return Format.CSV if plain.endswith((".csv", ".tsv")) else None


def _is_json_line(head: bytes) -> bool:
    """Whether a text begins with a line that is an object; a longer line than was read is believed."""
    line, end, _ = head.partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return not end


def add_files(database: Database, name: str, kind: Format, paths: Sequence[Path]) -> list[str]:
    """Add the tables of files of a format; returns their names. UnreadableTable names a file that cannot be read."""
    try:
        match kind:
            case Format.PARQUET:
                return [_add_parquet(database, name, paths)]
            case Format.DUCKDB:
                return [table for path in paths for table in _add_duckdb(database, path)]
            case Format.SQLITE:
                return [table for path in paths for table in _add_sqlite(database, path)]
            case Format.JSON_LINES:
                return [_copy(database, name, f"read_json({_path_list(paths)}, union_by_name = true)")]
            case Format.CSV:
                return [_copy(database, name, f"read_csv({_path_list(paths)}, union_by_name = true)")]
    except (duckdb.Error, sqlite3.Error, pa.ArrowException) as error:
        raise UnreadableTable(f"{paths[0]}: {str(error).splitlines()[0]}") from error


def table_name(text: str) -> str:
    """A name for the table of a path: its last part without suffixes, in plain letters."""
    stem = re.sub(
        r"(\.(parquet|csv|tsv|jsonl?|ndjson|sqlite3?|db|duckdb|gz))+$",
        "",
        Path(text.rstrip("/*")).name,
        flags=re.IGNORECASE,
    )
    return re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_") or "table"


def _path_list(paths: Sequence[Path]) -> str:
    return "[" + ", ".join(literal(str(path.resolve())) for path in paths) + "]"


def _add_parquet(database: Database, name: str, paths: Sequence[Path]) -> str:
    """Partition folders such as ``rank=3`` become columns."""
    name = database.free_name(name)
    source = f"read_parquet({_path_list(paths)}, union_by_name = true)".replace("{", "{{").replace("}", "}}")
    database.add_view(
        name, f"SELECT *, (file_index::BIGINT << {ROW_BITS}) | file_row_number AS {{row_key}} FROM {source}", paths
    )
    return name


def _add_duckdb(database: Database, path: Path) -> Iterator[str]:
    alias = f"attached_{len(database.tables)}"
    database.connection.execute(f"ATTACH {literal(str(path.resolve()))} AS {alias} (READ_ONLY)")
    found = database.connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ? AND NOT internal ORDER BY ALL",
        [alias],
    ).fetchall()
    for schema, table in found:
        name = database.free_name(table)
        source = f"{alias}.{identifier(schema)}.{identifier(table)}".replace("{", "{{").replace("}", "}}")
        database.add_view(name, f"SELECT *, rowid AS {{row_key}} FROM {source}")
        yield name


def _add_sqlite(database: Database, path: Path) -> Iterator[str]:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        for (table,) in tables.fetchall():
            cursor = connection.execute(f"SELECT * FROM {identifier(table)}")
            columns = [column[0] for column in cursor.description]
            yield _copy_rows(database, database.free_name(table), columns, cursor)
    finally:
        connection.close()


def _copy_rows(database: Database, name: str, columns: Sequence[str], cursor: sqlite3.Cursor) -> str:
    """SQLite's columns hold any type in any row: a column is a number if all its values are, else text."""
    rows = cursor.fetchall()
    arrays = [_array([row[number] for row in rows]) for number in range(len(columns))]
    batch = pa.table(dict(zip(columns, arrays, strict=True)))
    database.connection.register("incoming", batch)
    database.create_loaded(name, "SELECT * FROM incoming")
    database.connection.unregister("incoming")
    return name


def _array(values: list[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        texts = [value.hex() if isinstance(value, bytes) else None if value is None else str(value) for value in values]
        return pa.array(texts, pa.string())


def _copy(database: Database, name: str, source: str) -> str:
    name = database.free_name(name)
    database.create_loaded(name, f"SELECT * FROM {source}")
    return name
