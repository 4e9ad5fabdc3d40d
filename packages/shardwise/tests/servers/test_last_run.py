"""The last run of a project is shown by the next session of an editor, unless a file that it is about has changed."""

import os

import pytest

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.formats import to_json
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.servers.last_run import file_of, keep, last_run

COMMAND = ("python", "-m", "shardwise", "check", "train.py")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = tmp_path / "train.py"
    script.write_text("x = 1\n")
    os.utime(script, (1e9, 1e9))
    result = RunResult((Finding("SW112", "gelu needs complete values", SourceLocation(str(script), 1)),), checked_ops=3)
    keep(to_json(result), COMMAND, tmp_path)
    return tmp_path


def test_what_was_kept_is_read_again_in_its_folder_and_for_its_command_only(kept):
    found = last_run(COMMAND, kept)
    assert [one.code for one in found.findings] == ["SW112"]
    assert last_run((*COMMAND, "--steps=2"), kept) is None
    assert last_run(COMMAND, kept / "cache") is None


def test_a_run_is_not_shown_beside_another_text(kept):
    os.utime(kept / "train.py")
    os.utime(file_of(COMMAND, kept), (1.1e9, 1.1e9))
    assert last_run(COMMAND, kept) is None


def test_a_run_of_a_file_that_is_gone_is_not_shown(kept):
    (kept / "train.py").unlink()
    assert last_run(COMMAND, kept) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00", '{"schema": "another"}'])
def test_a_damaged_file_is_no_run(kept, text):
    file_of(COMMAND, kept).write_text(text)
    assert last_run(COMMAND, kept) is None


def test_without_a_place_for_it_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep("{}", COMMAND, tmp_path)
    assert last_run(COMMAND, tmp_path) is None
