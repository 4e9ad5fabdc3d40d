"""Files of events: each format is found by its content, read with its types, and a damaged one is named."""

from __future__ import annotations

import json
import sqlite3
from datetime import datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tracewise.read.archive import InputError
from tracewise.read.source import open_sources
from tracewise.store.database import Database
from tracewise.store.opening import fill
from tracewise.store.table import Kind, TimeUnit

ROWS = [{"ts": datetime(2026, 11, 22, 3, number), "name": f"n{number}", "value": number / 2} for number in range(4)]


@pytest.fixture
def opened(tmp_path):
    """A function that opens paths and gives their tables with all their rows."""
    stack = []

    def open_paths(*paths):
        sources = open_sources([str(path) for path in paths]).__enter__()
        database = Database(threads=1)
        stack.extend((sources, database))
        fill(database, sources, processes=1)
        database.lock()
        return database

    yield open_paths
    for resource in reversed(stack):
        resource.__exit__(None, None, None)


def rows_of(database, name):
    with database.reading() as connection:
        return connection.execute(f'SELECT ts, name, value FROM "{name}" ORDER BY ts').fetchall()


EXPECTED = [tuple(row.values()) for row in ROWS]


def write_parquet(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_csv(path):
    lines = ["ts,name,value", *(f"{row['ts']},{row['name']},{row['value']}" for row in ROWS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_json_lines(path):
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in ROWS))
    return path


def write_duckdb(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE events_of_mine (ts TIMESTAMP, name VARCHAR, value DOUBLE)")
        connection.executemany("INSERT INTO events_of_mine VALUES (?, ?, ?)", EXPECTED)
    return path


@pytest.mark.parametrize(
    ("write", "file", "table"),
    [
        (write_parquet, "some-events.parquet", "some_events"),
        (write_parquet, "no_suffix", "no_suffix"),
        (write_csv, "some.csv", "some"),
        (write_json_lines, "some.jsonl", "some"),
        (write_duckdb, "some.db", "events_of_mine"),
    ],
)
def test_a_file_becomes_a_table_with_a_time_column(opened, tmp_path, write, file, table):
    database = opened(write(tmp_path / file))
    assert list(database.tables) == [table]
    assert rows_of(database, table) == EXPECTED
    found = database.tables[table]
    assert (found.rows, found.time.column.name, found.time.unit) == (4, "ts", TimeUnit.TIMESTAMP)
    assert [column.kind for column in found.columns] == [Kind.TIME, Kind.TEXT, Kind.NUMBER]


def test_sqlite_columns_of_mixed_types_become_text(opened, tmp_path):
    path = tmp_path / "some.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (stamp INTEGER, mixed)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?)", [(1795319722, 1), (1795319723, "two"), (1795319724, b"\x03"), (None, None)]
    )
    connection.commit()
    connection.close()
    database = opened(path)
    with database.reading() as reading:
        assert reading.execute("SELECT mixed FROM t ORDER BY row_key").fetchall() == [
            ("1",),
            ("two",),
            ("03",),
            (None,),
        ]
    assert database.tables["t"].time.unit is TimeUnit.SECONDS


@pytest.mark.parametrize("unit", [TimeUnit.SECONDS, TimeUnit.MILLISECONDS, TimeUnit.MICROSECONDS, TimeUnit.NANOSECONDS])
def test_the_unit_of_a_numeric_time_is_guessed(opened, tmp_path, unit):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit.value]
    path = write_parquet(tmp_path / "x.parquet", [{"size": 5, "created_at": 1795319722 * per_second}])
    time = opened(path).tables["x"].time
    assert (time.column.name, time.unit) == ("created_at", unit)


def test_numbers_that_are_no_times_are_not_taken_for_some(opened, tmp_path):
    path = write_parquet(tmp_path / "x.parquet", [{"time": 5, "value": 1795319722}])
    assert opened(path).tables["x"].time is None


def test_a_folder_of_partitions_is_one_table(opened, tmp_path):
    for rank in range(3):
        write_parquet(tmp_path / "run7" / f"rank={rank}" / "part.parquet", ROWS[rank:])
    database = opened(tmp_path / "run7")
    (table,) = database.tables.values()
    assert (table.name, table.rows) == ("run7", 9)
    with database.reading() as connection:
        assert connection.execute("SELECT rank, count(*) FROM run7 GROUP BY 1 ORDER BY 1").fetchall() == [
            (0, 4),
            (1, 3),
            (2, 2),
        ]
        assert connection.execute("SELECT count(DISTINCT row_key) FROM run7").fetchall() == [(9,)]


def test_a_glob_is_one_table(opened, tmp_path):
    for number in range(3):
        write_parquet(tmp_path / f"part-{number}.parquet", ROWS[:2])
    write_parquet(tmp_path / "other.parquet")
    (table,) = opened(tmp_path / "part-*.parquet").tables.values()
    assert table.rows == 6


def test_folders_are_tables_of_their_own(opened, tmp_path):
    write_parquet(tmp_path / "spans" / "a.parquet")
    write_parquet(tmp_path / "events" / "a.parquet")
    assert sorted(opened(tmp_path).tables) == ["a", "a_2"] or sorted(opened(tmp_path).tables) == ["events", "spans"]


def test_a_column_named_like_the_row_key_stays(opened, tmp_path):
    path = write_parquet(tmp_path / "x.parquet", [{"row_key": 41, "ROW_KEY_": 42}])
    database = opened(path)
    table = database.tables["x"]
    assert [column.name for column in table.columns] == ["row_key", "ROW_KEY_"]
    assert table.row_key.name not in ("row_key", "ROW_KEY_")


@pytest.mark.parametrize("name", ["x.parquet", "x.sqlite", "x.db"])
def test_a_damaged_file_is_named(opened, tmp_path, name):
    path = tmp_path / name
    begin = {"x.parquet": b"PAR1", "x.sqlite": b"SQLite format 3\0", "x.db": b"\0" * 8 + b"DUCK"}[name]
    path.write_bytes(begin + b"nothing that could be read" * 100)
    with pytest.raises(InputError, match=name):
        opened(path)


def test_what_is_no_table_is_told(opened, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("nothing of use\n")
    with pytest.raises(InputError, match=r"nothing to explore among 1 files.*notes\.txt"):
        opened(path)


def test_a_text_in_a_file_name_is_only_a_name(opened, tmp_path):
    path = write_parquet(tmp_path / "a'; DROP TABLE x; -- {0}.parquet")
    (table,) = opened(path).tables.values()
    assert table.rows == 4


def test_only_the_opened_files_can_be_read(opened, tmp_path):
    database = opened(write_parquet(tmp_path / "x.parquet"))
    write_parquet(tmp_path / "y.parquet")
    with database.reading() as connection, pytest.raises(duckdb.PermissionException):
        connection.execute(f"SELECT * FROM read_parquet('{tmp_path}/y.parquet')").fetchall()
