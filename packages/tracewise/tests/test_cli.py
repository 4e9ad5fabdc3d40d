"""The command line: results on stdout, complaints on stderr, a status that says which, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tracewise.cli.main import main
from tracewise.tables.schema import TABLES

from .golden import NAMES, golden
from .writing import Writer, artifact, ids


class Outcome(NamedTuple):
    """What a command ended with."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, *capsys.readouterr())

    return command


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace/a.log").write_bytes(golden("basic-break"))
    return tmp_path / "trace"


def test_a_report_is_written_and_found(run, trace, tmp_path):
    done = run("report", trace)
    assert done.status == 0
    assert done.out.splitlines()[0] == "3 compilations, 2 problems, 0 recompilations"
    assert (tmp_path / done.out.splitlines()[1]).is_file()


def test_strict_fails_for_problems_and_for_damage(run, trace, tmp_path):
    assert run("report", trace, "--strict").status == 1
    clean = Writer().compilation("f").write(tmp_path, "clean.log")
    assert run("report", clean, "--strict", "-o", "1").status == 0
    clean.write_bytes(clean.read_bytes() + b"\tstray\n")
    done = run("report", clean, "--strict", "-o", "2")
    assert done.status == 1
    assert "1 records or lines not understood" in done.out


def test_json_is_one_object_and_nothing_else(run, trace):
    for arguments in (("report", trace, "--json"), ("show", trace, "--json"), ("show", trace, "0/0", "--json")):
        done = run(*arguments)
        assert isinstance(json.loads(done.out), dict)


def test_what_cannot_be_read_is_named_with_status_2(run, trace, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/thesis.tex").write_text("x")
    cases = {
        ("report", "nowhere"): "nowhere: no such file or folder",
        ("report", "empty"): "no trace log among the 0 files",
        ("report", "picture.png"): "no trace log among the 1 files given (found: other)",
        ("report", trace, "-o", "notes"): "holds files that tracewise did not write",
        ("report", trace, "--run", "7"): "--run 7: there are runs 0 to 0",
        ("report", trace, "--ranks", "x"): "'x' is no rank",
        ("report", trace, "--latest"): "give either PATH... or --latest",
        ("report",): "give either PATH... or --latest",
        ("show", trace, "9/9"): "no compilation 9/9 in this run; there are [0/0], [1/0], [2/0]",
        ("show", trace, "what"): "'what' is no compile id",
        ("show", trace, "0/0", "--artifact", "nothing"): "has no text 'nothing'; it has",
        ("show", trace, "--artifact", "graph"): "--artifact needs the ID",
        ("table", trace, "--table", "nothing"): "'nothing' is not one of",
        ("nothing",): "No such command 'nothing'",
    }
    for arguments, complaint in cases.items():
        done = run(*arguments)
        assert done.status == 2, arguments
        assert complaint in " ".join(done.err.split()), done.err
        assert done.out == ""


def test_show_prints_a_run_a_compilation_and_a_text(run, trace):
    assert "TW-graph-break" in run("show", trace).out
    assert "dynamo_output_graph" in run("show", trace, "[0/0]").out
    assert run("show", trace, "[0/0]", "--artifact", "graph").out.startswith("class GraphModule(torch.nn.Module):")


@pytest.mark.parametrize("name", NAMES)
def test_show_takes_every_real_log(run, tmp_path, name):
    (tmp_path / "a.log").write_bytes(golden(name))
    assert run("show", "a.log").status == 0


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_a_header_and_its_columns_are_explained(run, trace, tmp_path, table):
    done = run("table", trace, "--table", table)
    assert done.out.splitlines()[0].split(",") == TABLES[table].names
    told = run("table", trace, "--table", table, "--columns").out
    assert all(name in told for name in TABLES[table].names)
    run("table", trace, "--table", table, "--format", "jsonl", "-o", "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert all(list(row) == TABLES[table].names for row in rows)


def test_each_run_of_a_folder_gets_a_report_when_asked(run, trace, tmp_path):
    (trace / "b.log").write_bytes(golden("basic-fail"))
    assert "2 runs found; this is the newest" in run("report", trace).err
    assert run("report", trace, "--all", "-o", "all").status == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["run-0", "run-1"]


def test_the_newest_trace_of_torch_is_found(run, trace, monkeypatch):
    name = trace / "dedicated_log_torch_trace_abcd1234.log"
    (trace / "a.log").rename(name)
    monkeypatch.setenv("TORCH_TRACE", str(trace))
    assert run("report", "--latest").status == 0
    monkeypatch.setenv("TORCH_TRACE", str(trace / "nowhere"))
    assert "--latest: no trace in" in run("report", "--latest", "-o", "other").err


def test_redaction_takes_secrets_out_and_tells(run, tmp_path):
    secret = "A1b2" * 10
    text = f"api_key = '{secret}'\nopen('/home/marie/data')\nos.environ['TOKEN'] = 'x'"
    log = Writer().compilation("f", inside=(artifact("code", text, **ids(), second=0.5),)).write(tmp_path, "a.log")
    done = run("report", log, "--redact", "-o", "out")
    assert done.status == 0
    assert "redacted" in done.err
    assert "not understood" not in done.out
    pages = "".join(
        path.read_text() for path in (tmp_path / "out").rglob("*") if path.suffix in (".html", ".json", ".js")
    )
    assert "redacted" in pages
    for word in (secret, "marie", "= 'x'"):
        assert word not in pages


def test_a_reader_that_stops_is_no_error(run, trace, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tracewise.cli.commands.show.find_answers", stop)
    assert run("show", trace).status == 130
