"""The tables of trace logs in the database, their growth while a program still writes, and the payload of an event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tracewise.model.runs import file_span
from tracewise.read.clock import find_clock
from tracewise.read.health import Health
from tracewise.read.source import SourceFile
from tracewise.store.database import LOADED_SCHEMA, Database, identifier
from tracewise.store.load import Batch, Log, read_batches
from tracewise.store.table import Column, Kind, TimeColumn, TimeUnit
from tracewise.tables.schema import TABLES
from tracewise.tables.schema import Column as SchemaColumn

SQL_TYPES = {
    "time": "TIMESTAMP",
    "text": "VARCHAR",
    "integer": "BIGINT",
    "real": "DOUBLE",
    "boolean": "BOOLEAN",
    "json": "JSON",
}
TIME = TimeColumn(Column("time", Kind.TIME, "TIMESTAMP"), TimeUnit.TIMESTAMP)
MAX_PAYLOAD_BYTES = 4 << 20


class TraceTables:
    """The tables of ``tables.schema`` in a database, filled from logs."""

    def __init__(self, database: Database, logs: Sequence[Log], processes: int | None = None) -> None:
        self.database, self.logs, self.processes = database, list(logs), processes
        self.health = Health()
        self._paths = {log.span.source.name: log.span.source.path for log in logs}
        for table in TABLES.values():
            columns = ", ".join(f"{identifier(column.name)} {SQL_TYPES[column.type]}" for column in table.columns)
            target = f"{LOADED_SCHEMA}.{identifier(table.name)}"
            database.connection.execute(f"CREATE TABLE {target} ({columns})")
            shown = ", ".join(identifier(column.name) for column in sorted(table.columns, key=_reading_order))
            database.add_view(table.name, f"SELECT {shown}, rowid AS {{row_key}} FROM {target}", time=TIME)

    @property
    def offset_us(self) -> int:
        """Local time minus UTC where the first log was written."""
        path = self.logs[0].span.source.path
        with path.open("rb") as log:
            return find_clock(log, path).offset_us

    def load(self) -> None:
        """Read all logs."""
        for batch in read_batches(self.logs, self.health, processes=self.processes):
            self._insert(batch)
        self._refresh()

    def follow(self) -> int:
        """Read the logs that grew since they were last read; how many did.

        A log is read again as a whole, because a compilation that went on has other rows than before. Who looks at the
        tables meanwhile sees either all the old rows or all the new ones.
        """
        grown = [(number, log) for number, log in enumerate(self.logs) if _size(log.span.source) > log.span.source.size]
        if not grown:
            return 0
        for number, log in grown:
            source = replace(log.span.source, size=_size(log.span.source))
            self.logs[number] = Log(file_span(source), log.run)
        changed = [self.logs[number] for number, _ in grown]
        connection = self.database.connection
        connection.execute("BEGIN TRANSACTION")
        try:
            self._delete(log.span.source.name for log in changed)
            for batch in read_batches(changed, Health(), processes=self.processes):
                self._insert(batch)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        self._refresh()
        return len(grown)

    def payload(self, row_key: int) -> str | None:
        """The payload of a row of events, read from its log; None if it has none."""
        with self.database.reading() as connection:
            found = connection.execute('SELECT file, "offset" FROM main.events WHERE row_key = ?', [row_key]).fetchall()
        path = self._paths.get(found[0][0]) if found else None
        return payload_at(path, found[0][1]) if path else None

    def _insert(self, batch: Batch) -> None:
        connection = self.database.connection
        connection.register("incoming", batch.rows)
        connection.execute(f"INSERT INTO {LOADED_SCHEMA}.{identifier(batch.table)} SELECT * FROM incoming")
        connection.unregister("incoming")

    def _delete(self, files: Iterable[str]) -> None:
        names = list(files)
        for table in TABLES:
            self.database.connection.execute(
                f"DELETE FROM {LOADED_SCHEMA}.{identifier(table)} WHERE file IN (SELECT unnest(?))", [names]
            )

    def _refresh(self) -> None:
        for table in TABLES:
            self.database.refresh(table)


def _reading_order(column: SchemaColumn) -> int:
    """When and who first, what happened next, where it is written last; the rest stays as it is."""
    return {"time": 0, "rank": 1, "run": 3, "host": 3, "file": 3, "line": 3}.get(column.name, 2)


def payload_at(path: Path, offset: int, limit: int = MAX_PAYLOAD_BYTES) -> str | None:
    """The payload of the record whose head line begins at ``offset``; a longer one is cut, and says so."""
    with path.open("rb") as log:
        log.seek(offset)
        head = log.readline(limit)
        if not head.endswith(b"\n"):
            return None
        lines, size = [], 0
        while (line := log.readline(limit)).startswith(b"\t"):
            lines.append(line[1:])
            size += len(line)
            if size >= limit:
                lines.append(f"\n... cut here: only the first {limit >> 20} MB are shown".encode())
                break
    return b"".join(lines).removesuffix(b"\n").decode("utf-8", "replace") if lines else None


def _size(source: SourceFile) -> int:
    try:
        return source.path.stat().st_size
    except OSError:
        return 0
