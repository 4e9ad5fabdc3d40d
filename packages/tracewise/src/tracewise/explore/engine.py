"""Runs statements on the database: a read-only connection a request, a time limit, and a way to stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb

from tracewise.explore.bind import Value
from tracewise.explore.sql import Sql
from tracewise.store.database import Database

Row = tuple[Any, ...]


class QueryError(Exception):
    """A statement that the database could not answer; the message is for the user."""


class QueryStopped(QueryError):
    """The one who asked went away or asked anew."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A statement that ran, for the line below the result."""

    text: str
    params: tuple[Value | None, ...]
    seconds: float
    rows: int


class Stop:
    """A request to stop that reaches a statement now running and each one after it; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self.reason = ""

    def now(self, reason: str) -> None:
        with self._lock:
            self.reason = self.reason or reason
            if self._connection is not None:
                self._connection.interrupt()

    def watch(self, connection: duckdb.DuckDBPyConnection | None) -> None:
        with self._lock:
            self._connection = connection


@dataclass(slots=True)
class Session:
    """The statements of one request."""

    connection: duckdb.DuckDBPyConnection
    stop: Stop
    ran: list[Ran] = field(default_factory=list)

    @property
    def column_names(self) -> list[str]:
        """Of the last statement."""
        return [column[0] for column in self.connection.description or ()]

    def fetch(self, statement: Sql, most: int | None = None) -> list[Row]:
        """All rows of a statement, or the first ``most``; QueryError if it fails, QueryStopped if it was stopped."""
        started = time.perf_counter()
        if self.stop.reason:
            raise QueryStopped(self.stop.reason)
        try:
            done = self.connection.execute(statement.text, list(statement.params))
            rows = done.fetchall() if most is None else done.fetchmany(most)
        except duckdb.InterruptException:
            raise QueryStopped(self.stop.reason or "stopped") from None
        except (duckdb.Error, OverflowError, ValueError) as error:
            raise QueryError(_first_line(error)) from None
        self.ran.append(Ran(statement.text, statement.params, time.perf_counter() - started, len(rows)))
        return rows


def only_select(text: str) -> Sql:
    """Raw SQL that a user typed, if it is one statement that reads; QueryError says what it is otherwise."""
    try:
        found = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise QueryError(_first_line(error)) from None
    kinds = [statement.type.name for statement in found]
    if kinds != ["SELECT"]:
        raise QueryError(f"expected one SELECT statement, found {', '.join(kinds) or 'none'}")
    return Sql(text)


class Engine:
    """Answers statements over one database, each request within ``timeout_s`` seconds."""

    def __init__(self, database: Database, timeout_s: float = 10.0) -> None:
        self.database = database
        self.timeout_s = timeout_s

    @contextmanager
    def session(self, stop: Stop | None = None) -> Iterator[Session]:
        stop = stop or Stop()
        limit = threading.Timer(
            self.timeout_s, stop.now, [f"stopped after {self.timeout_s:g} s; ask for less time or fewer groups"]
        )
        limit.daemon = True
        with self.database.reading() as connection:
            stop.watch(connection)
            limit.start()
            try:
                yield Session(connection, stop)
            finally:
                limit.cancel()
                stop.watch(None)


def _first_line(error: Exception) -> str:
    """DuckDB's message without its class and without the statement that it quotes below."""
    return str(error).strip().split("\n")[0] or type(error).__name__
