"""Forks and signals: what ends a process is neither lost in the callbacks around a fork nor heard twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest

from shardwise.host.forking import scratch_folder, signals_held

pytestmark = pytest.mark.processes
CALLBACK = """
import os, signal, sys
from shardwise.host.forking import signals_held

os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with signals_held():
        fork = os.fork()
        if fork == 0:
            os._exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
    print("lost")
except KeyboardInterrupt:
    print("heard, and the fork's handler is its own again:", os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0)
"""


def test_what_comes_while_the_process_forks_is_heard_afterwards():
    command = [sys.executable, "-c", textwrap.dedent(CALLBACK)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("heard, and the fork's handler is its own again: True\n", "")


def test_what_is_ignored_stays_ignored_and_what_was_there_is_there_again():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_held():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_folder_of_ours_is_gone_also_where_a_signal_comes_as_it_is_made(tmp_path, monkeypatch):
    def made(*args, **kwargs):
        folder = tmp_path / "made"
        folder.mkdir()
        os.kill(os.getpid(), signal.SIGINT)
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", made)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), scratch_folder("ours-"):
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []
