"""`tracewise record` runs a command with tracing on; `tracewise doctor` says what a folder has and lacks."""

from __future__ import annotations

import json
import sys

import pytest

from .command import run_command
from .golden import golden
from .ranks.dumps import write_dumps
from .reports import rank_logs

# A program that writes where TORCH_TRACE says, as torch does, without torch.
PROGRAM = """
import os, pathlib, shutil, sys
folder = pathlib.Path(os.environ["TORCH_TRACE"])
shutil.copy(sys.argv[1], folder / "dedicated_log_torch_trace_abcd1234.log")
print("LOG_TLPARSE", os.environ.get("LOG_TLPARSE"), flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "log").write_bytes(golden("basic-break"))
    return [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "log")]


@pytest.mark.processes
def test_a_recorded_command_is_reported_and_keeps_its_status(tmp_path, capsys, program):
    out = tmp_path / "out"
    status, _, err = run_command(capsys, "record", "-o", out, "--", *program, "3")
    assert status == 3
    assert "3 compilations, " in err
    assert (out / "report" / "index.html").is_file()
    facts = json.loads((out / "command.json").read_bytes())
    assert facts["command"] == [*program, "3"]
    assert facts["status"] == 3


@pytest.mark.processes
def test_full_sets_the_other_variables_too(tmp_path, capfd, program):
    status, out, _ = run_command(capfd, "record", "--full", "--no-report", "-o", tmp_path / "out", "--", *program, "0")
    assert (status, out.strip()) == (0, "LOG_TLPARSE 1")
    assert not (tmp_path / "out" / "report").exists()


@pytest.mark.processes
def test_a_command_that_compiles_nothing_is_said_to(tmp_path, capsys):
    status, _, err = run_command(capsys, "record", "-o", tmp_path / "out", "--", sys.executable, "-c", "")
    assert status == 0
    assert "the program compiled nothing" in err


def test_a_folder_with_something_in_it_is_refused(tmp_path, capsys):
    status, _, err = run_command(capsys, "record", "-o", tmp_path.parent, "--", "true")
    assert status == 2
    assert "exists; give another folder with -o" in err


@pytest.mark.processes
def test_a_command_that_does_not_exist_is_refused(tmp_path, capsys):
    status, _, err = run_command(capsys, "record", "-o", tmp_path / "out", "--", str(tmp_path / "nothing"))
    assert status == 2
    assert "cannot be started (No such file or directory)" in err


def test_doctor_says_what_is_there_and_which_variable_brings_the_rest(tmp_path, capsys):
    (tmp_path / "dedicated_log_torch_trace_abcd1234.log").write_bytes(golden("basic-simple"))
    status, out, _ = run_command(capsys, "doctor", tmp_path)
    assert status == 0
    assert "1 trace logs (TORCH_TRACE)" in out
    assert "no estimates (estimated run times and shapes of each operation): set LOG_TLPARSE=1" in out
    assert "no timeline" not in out


def test_doctor_finds_what_is_there(tmp_path, capsys):
    (tmp_path / "dedicated_log_torch_trace_abcd1234.log").write_bytes(golden("provenance"))
    _, out, _ = run_command(capsys, "doctor", tmp_path, "--json")
    assert json.loads(out)["folders"][0]["newest"]["parts"] == {
        "compilations": True, "timeline": True, "provenance": True, "estimates": True,
        "symbolic shapes in detail": False,
    }  # fmt: skip


def test_doctor_names_ranks_that_left_nothing(tmp_path, capsys):
    log = rank_logs("none")["dedicated_log_torch_trace_rank_1_abcd1231.log"]
    (tmp_path / "dedicated_log_torch_trace_rank_1_abcd1231.log").write_bytes(log)
    write_dumps(tmp_path / "flight", "none")
    (tmp_path / "flight" / "fr_2").unlink()
    _, out, _ = run_command(capsys, "doctor", tmp_path)
    assert "no log of rank 0" in out
    assert "no flight-recorder dump of rank 2" in out


def test_doctor_ends_with_a_status_for_damage(tmp_path, capsys):
    (tmp_path / "dedicated_log_torch_trace_abcd1234.log").write_bytes(golden("basic-simple")[:-300])
    status, out, _ = run_command(capsys, "doctor", tmp_path)
    assert status == 1
    assert "not understood: " in out


def test_doctor_without_a_folder_looks_where_torch_writes(tmp_path, capsys, monkeypatch):
    (tmp_path / "dedicated_log_torch_trace_abcd1234.log").write_bytes(golden("basic-simple"))
    monkeypatch.setenv("TORCH_TRACE", str(tmp_path))
    status, out, _ = run_command(capsys, "doctor")
    assert status == 0
    assert f"TORCH_TRACE={tmp_path}" in out
    assert f"{tmp_path}:" in out
