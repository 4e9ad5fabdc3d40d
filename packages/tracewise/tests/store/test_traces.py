"""Trace logs in the database and as Parquet: the rows of ``tables.rows``, whatever the way there."""

from __future__ import annotations

import json

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tracewise.cli.commands.table import command
from tracewise.model.runs import find_runs, load_run
from tracewise.read.health import Health
from tracewise.read.source import open_sources
from tracewise.store import load
from tracewise.store.database import Database
from tracewise.store.load import logs_of, read_batches
from tracewise.store.opening import fill
from tracewise.store.parquet import write_parquet
from tracewise.tables.rows import rows
from tracewise.tables.schema import SCHEMA_VERSION, TABLES

from ..golden import golden
from ..writing import Writer, artifact


@pytest.fixture
def folder(tmp_path):
    """Two ranks of one run."""
    made = tmp_path / "logs"
    made.mkdir()
    for rank in range(2):
        (made / f"dedicated_log_torch_trace_rank_{rank}_abcdefgh.log").write_bytes(golden(f"ranks-shape-{rank}"))
    return made


def expected_rows(folder):
    """All rows of all tables, by the plain way: one log after the other."""
    with open_sources([str(folder)]) as sources:
        logs = logs_of(find_runs(sources))
        runs = [load_run([log.span], log.run) for log in logs]
        return {name: [row for run in runs for row in rows(run, name)] for name in TABLES}


def as_plain(batches):
    found = {name: [] for name in TABLES}
    for batch in batches:
        plain = batch.rows.set_column(0, "time", batch.rows["time"].cast("int64"))
        found[batch.table] += [tuple(row.values()) for row in plain.to_pylist()]
    return found


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_rows_are_the_same_however_many_processes_read(folder, monkeypatch, processes):
    monkeypatch.setattr(load, "SMALL_BYTES", 0)
    with open_sources([str(folder)]) as sources:
        health = Health()
        found = as_plain(read_batches(logs_of(find_runs(sources)), health, processes=processes))
    assert health.is_clean
    expected = expected_rows(folder)
    assert {name: len(lines) for name, lines in found.items()} == {name: len(lines) for name, lines in expected.items()}
    assert found == expected
    assert {row[2] for row in found["events"]} == {0, 1, None} or {row[2] for row in found["events"]} == {0, 1}


def test_the_database_holds_them(folder):
    expected = expected_rows(folder)
    with open_sources([str(folder)]) as sources, Database(threads=1) as database:
        fill(database, sources, processes=1)
        database.lock()
        assert {name: table.rows for name, table in database.tables.items()} == {
            name: len(lines) for name, lines in expected.items()
        }
        with database.reading() as connection:
            found = connection.execute("SELECT compile_id, kind, line FROM events ORDER BY row_key").fetchall()
    names = TABLES["events"].names
    places = [names.index(name) for name in ("compile_id", "kind", "line")]
    assert found == [tuple(row[place] for place in places) for row in expected["events"]]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_what_was_not_understood_is_counted(folder, monkeypatch, processes):
    monkeypatch.setattr(load, "SMALL_BYTES", 0)
    for log in folder.iterdir():
        log.write_bytes(log.read_bytes() + b"V1122 04:00:00.000000 1 torch/x.py:1] {broken}\n")
    health = Health()
    with open_sources([str(folder)]) as sources:
        for _ in read_batches(logs_of(find_runs(sources)), health, processes=processes):
            pass
    assert health.damage["bad_json"] == 2


def test_a_payload_is_read_from_its_log(tmp_path):
    text = "line one\n\n\tindented\nlast"
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(Writer().add(artifact("note", text), artifact("empty", "")).parts))
    with open_sources([str(path)]) as sources, Database(threads=1) as database:
        traces = fill(database, sources, processes=1)
        with database.reading() as connection:
            keys = dict(connection.execute("SELECT name, row_key FROM events").fetchall())
        assert traces.payload(keys["note"]) == text
        assert traces.payload(keys["empty"]) == ""
        assert traces.payload(10**6) is None


def test_a_growing_log_is_followed(tmp_path):
    path = tmp_path / "x.log"
    writer = Writer().compilation("f")
    path.write_bytes(b"".join(writer.parts))
    with open_sources([str(path)]) as sources, Database(threads=1) as database:
        traces = fill(database, sources, processes=1)
        database.lock()
        assert traces.follow() == 0
        before = database.tables["compilations"].rows
        path.write_bytes(b"".join(writer.compilation("g", frame=1).parts))
        count = "SELECT count(*) FROM compilations"
        with database.reading() as old:
            assert old.execute(count).fetchall() == [(before,)]
            assert traces.follow() == 1
            assert old.execute(count).fetchall() == [(before,)]
        assert database.tables["compilations"].rows == before + 1
        assert traces.follow() == 0


def test_what_no_column_can_hold_costs_its_cell_only(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(artifact("\ud800 half", "x", pid=10**30) + artifact("whole", "x"))
    with open_sources([str(path)]) as sources, Database(threads=1) as database:
        fill(database, sources, processes=1)
        with database.reading() as connection:
            found = connection.execute("SELECT name, pid FROM events ORDER BY row_key").fetchall()
    assert found == [("? half", None), ("whole", 11100)]


def test_parquet_holds_all_rows_and_the_schema(folder, tmp_path):
    out = tmp_path / "out"
    with open_sources([str(folder)]) as sources:
        written = write_parquet(out, read_batches(logs_of(find_runs(sources)), Health(), processes=1), TABLES)
    expected = expected_rows(folder)
    assert written == {name: len(lines) for name, lines in expected.items()}
    schema = json.loads((out / "schema.json").read_text())
    assert schema["schema_version"] == SCHEMA_VERSION
    with duckdb.connect() as connection:
        files = f"{out}/events/*/*.parquet"
        query = (
            "SELECT epoch_us(time), run, rank, line, kind FROM read_parquet(?, hive_partitioning = true) ORDER BY ALL"
        )
        found = connection.execute(query, [files]).fetchall()
    names = TABLES["events"].names
    places = [names.index(name) for name in ("time", "run", "rank", "line", "kind")]
    assert found == sorted(
        (tuple(row[place] for place in places) for row in expected["events"]), key=lambda row: row[:3] + row[3:]
    )
    metadata = pq.read_schema(next((out / "events").rglob("*.parquet"))).metadata
    assert metadata[b"tracewise_schema_version"] == str(SCHEMA_VERSION).encode()


def test_parquet_is_not_written_over_something(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(FileExistsError, match="is not empty"):
        write_parquet(tmp_path, [], TABLES)


def test_the_exported_folder_can_be_explored(folder, tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(command, [str(folder), "--format", "parquet", "--table", "all", "-o", str(out)])
    assert done.exit_code == 0, done.output
    with open_sources([str(out)]) as sources, Database(threads=1) as database:
        fill(database, sources)
        database.lock()
        expected = {name: len(lines) for name, lines in expected_rows(folder).items() if lines}
        assert {name: table.rows for name, table in database.tables.items()} == expected
        assert {table.time.column.name for table in database.tables.values()} == {"time"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "parquet"], "needs -o FOLDER"),
        (["--table", "all"], "needs --format parquet"),
    ],
)
def test_wrong_use_is_told(folder, arguments, message):
    done = CliRunner().invoke(command, [str(folder), *arguments])
    assert done.exit_code == 2
    assert message in done.output
