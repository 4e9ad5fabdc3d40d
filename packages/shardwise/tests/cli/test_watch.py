"""``shardwise check --watch``: runs again when a file of the program changes, and survives what editors do."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from .conftest import TYPED

pytestmark = pytest.mark.processes
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

    def start(*options):
        started.append(Watching(tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


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


def test_a_script_that_does_not_parse_at_first_is_watched_all_the_same(tmp_path, watching):
    (tmp_path / "layers.py").write_text("import")
    (tmp_path / "train.py").write_text(SCRIPT)
    run = watching("--color", "never")
    assert "SyntaxError" in run.until("watching")
    (tmp_path / "layers.py").write_text(RIGHT)
    assert "clean; " in run.until("watching")


def test_it_watches_for_people_and_changes_nothing(project):
    project.write("", name="train.py")
    result = project.check("train.py", "--watch", "--fix")
    assert result.exit_code == 2
    assert "--watch is for a command of its own, without --fix and without a launcher" in result.stderr
