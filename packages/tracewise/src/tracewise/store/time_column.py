"""Which column of a table says when: by its type, its name, and whether its numbers are plausible times."""

from __future__ import annotations

import re

import duckdb

from tracewise.store.table import Column, Kind, Table, TimeColumn, TimeUnit

USUAL_NAME = re.compile(r"time|ts|timestamp|date|datetime", re.IGNORECASE)
HINTING_NAME = re.compile(r"time|date|stamp|(^|_)(ts|at|when|start|started|created)($|_)", re.IGNORECASE)
# 2000 to 2100 in seconds since the epoch
PLAUSIBLE_S = (946_684_800, 4_102_444_800)
UNITS = {TimeUnit.SECONDS: 1, TimeUnit.MILLISECONDS: 10**3, TimeUnit.MICROSECONDS: 10**6, TimeUnit.NANOSECONDS: 10**9}


def guess_time(connection: duckdb.DuckDBPyConnection, table: Table) -> TimeColumn | None:
    """The column to place rows by: of a time type before a numeric one, with a usual name before others."""
    times = sorted(table.of_kind(Kind.TIME), key=_unusualness)
    if times:
        return TimeColumn(times[0], TimeUnit.TIMESTAMP)
    candidates = [column for column in table.of_kind(Kind.NUMBER) if HINTING_NAME.search(column.name)]
    for column in sorted(candidates, key=_unusualness):
        if unit := _plausible_unit(connection, table, column):
            return TimeColumn(column, unit)
    return None


def _unusualness(column: Column) -> int:
    return 0 if USUAL_NAME.fullmatch(column.name) else 1 if HINTING_NAME.search(column.name) else 2


def _plausible_unit(connection: duckdb.DuckDBPyConnection, table: Table, column: Column) -> TimeUnit | None:
    name, source = (text.replace('"', '""') for text in (column.name, table.name))
    low, high = connection.execute(
        f'SELECT min("{name}")::DOUBLE, max("{name}")::DOUBLE FROM main."{source}"'
    ).fetchall()[0]
    if low is None:
        return None
    return next((unit for unit, per_s in UNITS.items() if _within(low / per_s) and _within(high / per_s)), None)


def _within(seconds: float) -> bool:
    return PLAUSIBLE_S[0] <= seconds <= PLAUSIBLE_S[1]
