"""One DuckDB database with the tables to explore: opened, filled, then locked so that a query can only read them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from tracewise.store.table import Column, Kind, Table, TimeColumn, kind_of
from tracewise.store.time_column import guess_time

LOADED_SCHEMA = "loaded"
MEMORY_LIMIT = "768MB"


class Database:
    """Tables by name. Fill it, ``lock`` it, then read it through ``reading`` from any thread.

    Each table is a view in the main schema with one more column, the row key. What is copied lies in a schema of its
    own, in a file of a folder that goes when the database is closed; what is not copied is read where it lies.
    """

    def __init__(self, *, memory_limit: str = MEMORY_LIMIT, threads: int | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="tracewise-")
        self.folder = Path(self._temporary.name)
        self.connection = duckdb.connect(str(self.folder / "tables.duckdb"))
        self.connection.execute(f"SET temp_directory = {literal(str(self.folder / 'spill'))}")
        self.connection.execute(f"SET memory_limit = {literal(memory_limit)}")
        if threads:
            self.connection.execute(f"SET threads = {int(threads)}")
        # A query on a table of no rows or a quantile of nothing is null, never an error; times are UTC.
        self.connection.execute("SET error_on_division_by_zero = false")
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute(f"CREATE SCHEMA {LOADED_SCHEMA}")
        # Readers are made from a connection that never runs anything, beside the one that writes.
        self._readers = self.connection.cursor()
        self.tables: dict[str, Table] = {}
        self._readable: list[str] = []

    def close(self) -> None:
        self._readers.close()
        self.connection.close()
        self._temporary.cleanup()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def free_name(self, wanted: str) -> str:
        """``wanted``, or with a number where there is a table of this name already."""
        taken, number = {name.lower() for name in self.tables}, 2
        name = wanted
        while name.lower() in taken:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def create_loaded(self, name: str, select: str, parameters: Iterable[object] = ()) -> None:
        """A table of rows copied from ``select``, SQL of ours."""
        target = f"{LOADED_SCHEMA}.{identifier(name)}"
        self.connection.execute(f"CREATE TABLE {target} AS {select}", list(parameters))
        self.add_view(name, f"SELECT *, rowid AS {{row_key}} FROM {target}")

    def add_view(self, name: str, select: str, files: Iterable[Path] = (), time: TimeColumn | None = None) -> Table:
        """Make a table of ``select``, SQL of ours that gives all columns, and the key under the name ``{row_key}``."""
        self._readable += [str(file.resolve()) for file in files]
        key = self._free_key(select)
        self.connection.execute(
            f"CREATE OR REPLACE VIEW main.{identifier(name)} AS {select.format(row_key=identifier(key))}"
        )
        described = self.connection.execute(f"DESCRIBE main.{identifier(name)}").fetchall()
        columns = tuple(Column(row[0], kind_of(row[1]), row[1]) for row in described if row[0] != key)
        table = Table(name, columns, Column(key, Kind.NUMBER, "BIGINT"), 0, time)
        if time is None:
            table = replace(table, time=guess_time(self.connection, table))
        self.tables[name] = table
        self.refresh(name)
        return self.tables[name]

    def _free_key(self, select: str) -> str:
        """A name for the row key that no column has; DuckDB's names are the same in upper and lower case."""
        described = self.connection.execute(f"DESCRIBE {select.format(row_key='row_key')}").fetchall()
        names = [row[0].lower() for row in described]
        names.remove("row_key")  # the key itself
        key = "row_key"
        while key in names:
            key += "_"
        return key

    def refresh(self, name: str) -> None:
        """Count the rows and look up the span of a table again, after rows were added."""
        table = self.tables[name]
        rows = _first(self.connection, f"SELECT count(*) FROM main.{identifier(name)}")[0]
        self.tables[name] = replace(table, rows=rows)

    def lock(self) -> None:
        """From here on no file but those of the tables can be opened, and no setting changed."""
        if self._readable:
            paths = ", ".join(literal(path) for path in self._readable)
            self.connection.execute(f"SET allowed_paths = [{paths}]")
        for setting in ("autoinstall_known_extensions = false", "autoload_known_extensions = false"):
            self.connection.execute(f"SET {setting}")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of its own in a transaction that can only read; safe beside others in other threads."""
        cursor = self._readers.cursor()
        try:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            yield cursor
        finally:
            cursor.close()


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string literal, for the statements that take no parameters; only paths and settings of ours come here."""
    return "'" + text.replace("'", "''") + "'"


def _first(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    return connection.execute(query).fetchall()[0]
