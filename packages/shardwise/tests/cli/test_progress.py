"""A long run says so on stderr; a short one says nothing."""

from __future__ import annotations

import io
import sys
import time

import pytest

from shardwise.cli.runs import progress as module
from shardwise.cli.runs.progress import CLEAR_LINE, progress


class Stream(io.StringIO):
    terminal = False

    def isatty(self):
        return self.terminal


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setattr(module, "QUIET_S", 0.02)
    monkeypatch.setattr(module, "PLAIN_EVERY_S", 0.02)
    monkeypatch.setattr(module, "MOVING_EVERY_S", 0.01)
    return Stream()


def wait_for(stream, words):
    deadline = time.monotonic() + 20
    while words not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return stream.getvalue()


def test_a_short_run_is_silent(stream, monkeypatch):
    monkeypatch.setattr(module, "QUIET_S", 60.0)
    with progress(lambda: "busy", stream=stream):
        pass
    assert stream.getvalue() == ""


def test_a_long_run_prints_plain_lines_where_there_is_no_terminal(stream):
    counts = iter(range(10**9))
    with progress(lambda: f"{next(counts)} operations checked", stream=stream):
        said = wait_for(stream, "1 operations checked\n")
    assert said.startswith("shardwise: 0 s, 0 operations checked\n")


@pytest.fixture
def terminal(stream, monkeypatch):
    monkeypatch.setattr(Stream, "terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_terminal_gets_one_moving_line_that_disappears(terminal):
    with progress(lambda: "busy", stream=terminal):
        assert "busy" in wait_for(terminal, "busy")
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith(CLEAR_LINE)


def test_what_the_program_prints_takes_the_place_of_the_moving_line(terminal):
    with progress(lambda: "busy", stream=terminal):
        wait_for(terminal, "busy")
        sys.stderr.write("step 1\nhalf a line")
        said = terminal.getvalue()
        time.sleep(0.05)
        assert terminal.getvalue() == said
    assert terminal.getvalue().endswith(f"busy{CLEAR_LINE}step 1\nhalf a line")


def test_a_dumb_terminal_gets_plain_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with progress(lambda: "busy", stream=terminal):
        assert wait_for(terminal, "busy\n").startswith("shardwise: 0 s, busy\n")


def test_plain_lines_can_be_left_out(stream):
    with progress(lambda: "busy", plain=False, stream=stream):
        time.sleep(0.1)
    assert stream.getvalue() == ""


def test_progress_stops_when_the_run_fails(stream):
    with pytest.raises(ZeroDivisionError), progress(lambda: "busy", stream=stream):
        raise ZeroDivisionError
    said = stream.getvalue()
    time.sleep(0.05)
    assert stream.getvalue() == said
