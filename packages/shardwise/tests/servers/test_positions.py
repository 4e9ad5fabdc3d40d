"""Columns in units of UTF-16, as editors count them."""

from __future__ import annotations

import pytest
from lsprotocol import types

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.servers.positions import range_of, utf8_column, utf16_column
from shardwise.servers.run_content import text_edits, word_at


@pytest.mark.parametrize(
    ("line", "utf8", "utf16"),
    [
        ("relu(h)", 5, 5),
        ('x = "ä"; relu(h)', 10, 9),
        ('x = "𝄞"; relu(h)', 12, 10),
        ("größe = relu(h)", 10, 8),
        ("h", 9, 1),
    ],
)
def test_columns_are_converted_both_ways(line, utf8, utf16):
    assert utf16_column(line, utf8) == utf16
    assert utf8_column(line, utf16) == min(utf8, len(line.encode()))


def test_a_span_without_columns_is_its_line():
    span = range_of(SourceLocation("f.py", 2), ["a", "    bä"])
    assert (span.start, span.end) == (types.Position(1, 4), types.Position(1, 6))


@pytest.mark.parametrize(
    ("character", "word"), [(4, "self"), (10, "self.größe"), (14, "self.größe"), (17, "x"), (15, "")]
)
def test_the_word_at_a_position(character, word):
    assert word_at("\nif  self.größe < x", types.Position(1, character)) == word


def test_edits_are_the_lines_that_change():
    (edit,) = text_edits("a\nb\nc\n", "a\nB\nc\n")
    assert (edit.range.start.line, edit.range.end.line, edit.new_text) == (1, 2, "B\n")


def test_a_form_feed_or_an_odd_space_ends_no_line_of_an_editor():
    before = "a\n\x0c\nb = '\u2028'\nc\n"
    (edit,) = text_edits(before, before.replace("c\n", "C\n"))
    assert (edit.range.start.line, edit.range.end.line) == (3, 4)
    assert word_at(before, types.Position(3, 0)) == "c"
