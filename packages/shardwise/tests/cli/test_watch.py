"""``shardwise check --watch``: runs again when a file of the program changes, and survives what editors do."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from shardwise.cli.runs.watching import stamp_of

from .conftest import TYPED

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]
WAIT_S = 120.0
SCRIPT = TYPED + "from layers import layer\n\nwith set_current_mesh(mesh):\n    layer()\n"
WRONG = """\
import torch
from shardwise import *

def layer():
    torch.relu(assert_type(torch.ones(4), {"dp": R, "tp": P}))
"""
RIGHT = WRONG.replace("torch.relu", "torch.neg")


class Watching:
    """The command, and the lines that it prints as they come."""

    def __init__(self, folder, *options):
        command = [sys.executable, "-m", "shardwise", "check", "train.py", "--watch", *options]
        # A shell has what it starts in the background ignore Ctrl-C, and so does what that starts: this test, maybe.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )
        finally:
            signal.signal(signal.SIGINT, before)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def until(self, word):
        """What is printed up to the line with ``word``."""
        said = ""
        while word not in said:
            line = self.lines.get(timeout=WAIT_S)
            assert line, f"the command has ended: {said}"
            said += line
        return said

    def interrupted(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=WAIT_S)


@pytest.fixture
def watching(tmp_path):
    started = []

    def start(*options, folder=tmp_path):
        started.append(Watching(folder, *options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.mark.slow
def test_it_runs_again_for_every_change_and_ends_with_ctrl_c(tmp_path, watching):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "layers.py").write_text(WRONG)
    (tmp_path / "unrelated.py").write_text("")
    run = watching()
    said = run.until("watching")
    assert "SW112 partial-sum-in-nonlinear-op" in said
    assert "watching 2 files, " in said

    # as editors save: a new file in the place of the old one
    (tmp_path / "layers.py.new").write_text(RIGHT)
    os.replace(tmp_path / "layers.py.new", tmp_path / "layers.py")
    said = run.until("watching")
    assert "SW112" not in said
    assert "clean; " in said

    (tmp_path / "layers.py").write_text("def layer(:\n")
    said = run.until("watching")
    assert "SW910 script-error: the program raised SyntaxError" in said
    assert "layers.py:1" in said

    (tmp_path / "layers.py").write_text(RIGHT)
    assert "clean; " in run.until("watching")

    (tmp_path / "unrelated.py").write_text("x = 1")
    assert run.interrupted() == 0
    said = run.until("no longer watching")
    assert "SW" not in said
    assert "Traceback" not in said


def test_a_run_that_is_outdated_is_ended(tmp_path, watching):
    (tmp_path / "layers.py").write_text(RIGHT)
    (tmp_path / "train.py").write_text("print('begun', flush=True)\nimport time\ntime.sleep(1000)\n")
    run = watching()
    run.until("begun")
    (tmp_path / "train.py").write_text(SCRIPT)
    assert "clean; " in run.until("watching")


@pytest.mark.slow
def test_a_script_that_does_not_parse_at_first_is_watched_all_the_same(tmp_path, watching):
    (tmp_path / "layers.py").write_text("import")
    (tmp_path / "train.py").write_text(SCRIPT)
    run = watching("--color", "never")
    assert "SyntaxError" in run.until("watching")
    (tmp_path / "layers.py").write_text(RIGHT)
    assert "clean; " in run.until("watching")


def test_a_file_that_may_be_read_now_has_changed(tmp_path):
    file = tmp_path / "layers.py"
    file.write_text(RIGHT)
    file.chmod(0o000)
    before = stamp_of(str(file))
    file.chmod(0o644)
    assert stamp_of(str(file)) != before


@pytest.mark.slow
def test_a_module_that_is_missing_is_waited_for(tmp_path, watching):
    (tmp_path / "train.py").write_text(SCRIPT.replace("layers", "parts.layers"))
    run = watching("--color", "never")
    assert "No module named 'parts'" in run.until("watching")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    assert "No module named 'parts.layers'" in run.until("watching")
    (tmp_path / "parts" / "layers.py").write_text(RIGHT)
    assert "clean; " in run.until("watching")


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("file", ["pyproject.toml", "../pyproject.toml"])
def test_the_settings_of_the_project_are_read_anew(tmp_path, watching, file):
    (tmp_path / "inner").mkdir()
    settings = tmp_path / "inner" / file
    (tmp_path / "inner" / "train.py").write_text(SCRIPT)
    (tmp_path / "inner" / "layers.py").write_text(WRONG)
    run = watching(folder=tmp_path / "inner")
    assert "SW112" in run.until("watching")
    settings.write_text("[tool.shardwise]\nignore = ['SW112']\n")
    assert "held back: 1 finding" in run.until("watching")
    settings.write_text("[tool.shardwise]\nignor = []\n")
    assert "unknown key 'ignor'" in run.until("watching")
    settings.unlink()
    assert "SW112" in run.until("watching")


@pytest.mark.slow
def test_a_baseline_that_grows_is_read_anew(tmp_path, watching):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "layers.py").write_text(WRONG)
    known = tmp_path / "known.json"
    known.write_text('{"schema": "shardwise.baseline/1", "findings": []}')
    run = watching("--baseline", "known.json")
    assert "SW112" in run.until("watching")
    command = [sys.executable, "-m", "shardwise", "check", "train.py", "--baseline", "known.json", "--write-baseline"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert "held back: 1 finding by the baseline" in run.until("watching")


def test_what_the_program_reads_of_its_own_settings_is_watched_and_what_it_writes_is_not(tmp_path, watching):
    reads = "import json\nprint('size', json.load(open('size.json')))\n"
    writes = "import os, pathlib\npathlib.Path('log.json').write_text(str(os.getpid()))\nopen('log.json').close()\n"
    (tmp_path / "train.py").write_text(SCRIPT + reads + writes)
    (tmp_path / "layers.py").write_text(RIGHT)
    (tmp_path / "size.json").write_text("4")
    (tmp_path / "log.json").write_text("0")
    run = watching()
    said = run.until("watching")
    assert "size 4" in said
    assert "watching 3 files, " in said
    (tmp_path / "size.json").write_text("8")
    said = run.until("watching")
    assert said.count("size 8") == 1
    assert run.interrupted() == 0
    assert "size" not in run.until("no longer watching")


def test_it_watches_for_people_and_changes_nothing(project):
    project.write("", name="train.py")
    result = project.check("train.py", "--watch", "--fix")
    assert result.exit_code == 2
    assert "--watch is for a command of its own, without --fix and without a launcher" in result.stderr
