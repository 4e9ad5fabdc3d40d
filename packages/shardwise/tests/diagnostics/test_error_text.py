"""Exceptions of a program as text, however odd they are."""

from __future__ import annotations

import json

import pytest

from shardwise.diagnostics.error_text import INNERMOST, LONGEST, in_one_line, location_of, own_traceback, ways_on


def deep(n: int) -> None:
    if n:
        deep(n - 1)
    raise ValueError("at the bottom" if not n else "on the way")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_of_a_deep_recursion_the_innermost_frames_are_told() -> None:
    try:
        deep(3 * INNERMOST)
    except ValueError as error:
        text, hidden = own_traceback(error)
    assert hidden == 0
    assert text.endswith("ValueError: at the bottom\n")
    assert "times]" in text
    assert text.count("\n") < 20


def test_causes_that_go_round_in_a_circle_are_told_once() -> None:
    one, other = raised(ValueError("one")), raised(ValueError("other"))
    one.__cause__, other.__cause__ = other, one
    text, _ = own_traceback(one)
    assert text.count("ValueError: one") == text.count("ValueError: other") == 1


def test_a_message_of_a_million_characters_says_how_it_begins_and_ends_and_how_much_is_left_out():
    try:
        raise ValueError("begins" + "x" * 1_000_000 + "ends")
    except ValueError as error:
        for text in (in_one_line(error), own_traceback(error)[0].rstrip("\n")):
            assert "begins" in text
            assert text.endswith("ends")
            assert "characters left out" in text
            assert len(text) < 2 * LONGEST


def test_no_escape_sequence_of_a_message_reaches_the_terminal() -> None:
    error = raised(ValueError("\x1b[31mred\x07 and \x1b]0;title\x07\nsecond\r line"))
    text, _ = own_traceback(error)
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert "[31mred" in text
    assert text.endswith("line\n")


def test_an_error_that_the_standard_library_raises_is_at_the_call_of_the_program() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        place = location_of(error)
    assert place is not None
    assert place.file == __file__


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ("SystemExit(2)", "if it lacks or refuses arguments, stderr has its words; they go after --: shardwise check"),
        ("ImportError: attempted relative import with no", "run it as a module of its package: shardwise check -m a.b"),
        ("SystemExit('needs a GPU')", "everything runs on the CPU here"),
    ],
)
def test_what_a_program_needs_that_ended_early_is_told(said: str, way: str) -> None:
    (told,) = ways_on(said, "a/b.py", "shardwise check a/b.py")
    assert told.startswith(way)


def test_a_script_that_ends_itself_is_told_where_its_arguments_go() -> None:
    (told,) = ways_on("SystemExit(3)", "a.py", "shardwise check a.py")
    assert "after --: shardwise check a.py -- ARGUMENTS" in told


def test_of_other_endings_nothing_is_guessed() -> None:
    for said in ("SystemExit(None)", "ValueError: no gpu", "SystemExit('guppy')"):
        assert ways_on(said, "a.py", "shardwise check a.py") == ()
