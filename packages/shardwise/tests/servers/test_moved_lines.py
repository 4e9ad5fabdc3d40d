"""What an editor is told while its text is not what was run: by the lines as they are now, nothing of changed ones."""

from __future__ import annotations

import random
import time

import pytest
from lsprotocol import types

from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.run_record import NamedTypes, RunRecord
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.servers.moved_lines import moved_lines
from shardwise.servers.run_content import RunContent

TEXT = "x = f()\ny = x * 2\ny = y + x\n"
EVERYTHING = types.Range(types.Position(0, 0), types.Position(99, 0))


def value(name, line, type):
    return NamedTypes(name, ((type, 1),), SourceLocation("train.py", line, line, 0, 1))


@pytest.fixture
def content(tmp_path):
    (tmp_path / "train.py").write_text(TEXT)
    record = RunRecord((value("x", 1, "f32[4]"), value("y", 2, "f32[2]"), value("y", 3, "f32[3]")))
    return RunContent(RunResult(record=record), tmp_path)


def hints(content, text):
    shown = content.hints(content.folder / "train.py", EVERYTHING, text)
    return [(one.position.line, one.label) for one in shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TEXT, [(0, ": f32[4]"), (1, ": f32[2]"), (2, ": f32[3]")]),
        ("# new\n" + TEXT, [(1, ": f32[4]"), (2, ": f32[2]"), (3, ": f32[3]")]),
        (TEXT.replace("y = x * 2", "y = x * 3"), [(0, ": f32[4]"), (2, ": f32[3]")]),
        (TEXT.replace("x = f()\n", ""), [(0, ": f32[2]"), (1, ": f32[3]")]),
        ("", []),
    ],
    ids=["as it was run", "a line before", "a line that has changed", "a line less", "nothing"],
)
def test_types_stand_where_the_lines_are_now(content, text, shown):
    assert hints(content, text) == shown


def test_the_history_of_a_name_has_the_lines_as_they_are_now(content):
    path = content.folder / "train.py"
    told = content.hover(path, types.Position(4, 0), "# new\n\n" + TEXT).contents.value
    assert "[line 5]" in told
    assert "[line 4]" in told
    assert content.hover(path, types.Position(0, 3), "# x = f()\n" + TEXT) is None


def test_where_a_type_came_from_is_where_the_line_is_now(content):
    path = content.folder / "train.py"
    (found,) = content.definition(path, types.Position(2, 4), "# new\n" + TEXT)
    assert found.range.start.line == 1
    assert content.definition(path, types.Position(0, 0), "y\n" + TEXT) == []


def test_text_is_what_was_run_though_the_file_is_saved_again(content):
    (content.folder / "train.py").write_text("# new\n" + TEXT)
    assert hints(content, "# new\n" + TEXT) == [(1, ": f32[4]"), (2, ": f32[2]"), (3, ": f32[3]")]


@pytest.mark.parametrize("seed", range(40))
def test_lines_that_are_said_to_be_the_same_are_and_keep_their_order(seed):
    chance = random.Random(seed)
    old = [chance.choice(["", "pass", "x = 1", "y = 2", f"z = {at}"]) for at in range(chance.randrange(30))]
    new = list(old)
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(new) + 1)
        new[at : at + chance.randrange(3)] = ["pass"] * chance.randrange(3)
    moved = moved_lines("\n".join(old), "\n".join(new))
    assert all(old[before] == new[after] for before, after in moved.now.items() if old and new)
    assert list(map(moved.now.get, sorted(moved.now))) == sorted(moved.now.values())
    assert moved.then == {after: before for before, after in moved.now.items()}


def test_in_a_long_text_an_editor_is_answered_while_somebody_types(tmp_path):
    lines = [line for at in range(7_000) for line in (f"x{at} = f()", "", "pass")]
    before = "\n".join(lines)
    lines[3] = lines[9_000] = lines[-4] = "x = g()"
    after = "\n".join(lines)
    (tmp_path / "train.py").write_text(before)
    values = tuple(value(f"x{at}", 3 * at + 1, "f32[4]") for at in range(7_000))
    started_s = time.process_time()
    content = RunContent(RunResult(record=RunRecord(values)), tmp_path)
    assert len(hints(content, before)) == 34
    assert len(hints(content, after)) == 33
    assert time.process_time() - started_s < 3  # it was half a minute
