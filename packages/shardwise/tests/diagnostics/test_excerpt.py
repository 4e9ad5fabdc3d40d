"""Whatever the source looks like, marks stand under the text they mark."""

import linecache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.diagnostics.excerpt import Mark, character_column, end_character_column, excerpt
from shardwise.diagnostics.printing.paint import plain
from shardwise.diagnostics.printing.printable import cells, clean, window
from shardwise.diagnostics.source_location import SourceLocation

FILE = "<excerpt>"
TEXT = st.text(st.sampled_from("ab (.\t\x1b\u0301é界🎉"), min_size=1, max_size=60).filter(lambda text: text.strip())


def put(text):
    linecache.cache[FILE] = (1, None, [text + "\n"], FILE)


@pytest.fixture(autouse=True)
def _forget():
    yield
    linecache.cache.pop(FILE, None)


def location_of(text, start, end):
    return SourceLocation(FILE, 1, 1, len(text[:start].encode()), len(text[:end].encode()))


def without_accents(text):
    """Combining marks take no cell, so an excerpt may show one more or one less of them."""
    return text.replace("\u0301", "").strip()


def drawn(text, start, end, width):
    """The line as shown, and the first and last cell of the carets under it."""
    put(text)
    lines = plain(excerpt([Mark(location_of(text, start, end), primary=True)], gutter=1, width=width)).split("\n")
    source, carets = (line[4:] for line in lines)
    assert set(carets) <= {" ", "^"}
    return source, carets.index("^"), len(carets)


@given(TEXT, st.integers(0, 60), st.integers(1, 20))
def test_carets_stand_under_the_marked_text(text, start, length):
    start = min(start, len(text) - 1)
    end = min(start + length, len(text))
    source, first, last = drawn(text, start, end, width=400)
    # How wide a tab is depends on what stands before it, so the marked text is what cleaning the prefix does not give.
    marked = clean(text[:end])[len(clean(text[:start])) :]
    if cells(marked) and marked.strip():
        assert without_accents(window(source, first, last)) == without_accents(marked)
    else:
        assert last - first >= 1


@given(TEXT, st.integers(0, 60), st.integers(30, 60))
def test_a_trimmed_line_keeps_the_first_marked_character_in_sight(text, start, width):
    text = "x = " + "before " * 9 + text.replace("\u0301", "").replace("\t", " ") + "Q" + " after" * 9
    at = text.index("Q")
    source, first, last = drawn(text, at, at + 1, width)
    assert window(source, first, last) == "Q"
    assert cells(source) <= width - 4
    assert source.endswith("...")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.text("xy ", max_size=40)), max_size=6))
def test_any_marks_can_be_drawn_and_no_label_is_lost(marks):
    put("value = function(one, two)(three)")
    drawn = [Mark(SourceLocation(FILE, 1, 1, start, start + length), label.strip()) for start, length, label in marks]
    text = plain(excerpt(drawn, gutter=1, width=60))
    for mark in drawn:
        assert mark.label in text
    assert "^" not in text


@given(TEXT, st.integers(0, 60), st.integers(1, 20))
def test_columns_count_characters_from_one(text, start, length):
    start = min(start, len(text) - 1)
    end = min(start + length, len(text))
    put(text)
    location = location_of(text, start, end)
    assert (character_column(location), end_character_column(location)) == (start + 1, end + 1)


def test_labels_hang_from_right_to_left():
    put("y = a * b + c")
    marks = [
        Mark(location_of("y = a * b + c", at, at + 1), label) for at, label in ((4, "first"), (8, "mid"), (12, "last"))
    ]
    assert plain(excerpt(marks, gutter=1, width=80)).split("\n") == [
        "1 | y = a * b + c",
        "  |     -   -   - last",
        "  |     |   |",
        "  |     |   mid",
        "  |     first",
    ]


def test_a_line_between_two_marked_ones_is_shown_and_longer_gaps_are_elided():
    linecache.cache[FILE] = (1, None, ["a\n", "b\n", "c\n", "d\n", "e\n", "f\n"], FILE)
    marks = [Mark(SourceLocation(FILE, line, line, 0, 1)) for line in (1, 3, 6)]
    assert plain(excerpt(marks, gutter=1, width=80)).split("\n") == [
        "1 | a", "  | -", "2 | b", "3 | c", "  | -", "...", "6 | f", "  | -",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 120])
def test_no_label_is_wider_than_the_page(width):
    text = "y = gelu(h) + bias"
    put(text)
    label = "h: f32[4, 512, 1024] {dp: S(0), tp: P}, partial over tp since this contraction of sharded dims"
    marks = [Mark(location_of(text, 4, 11), label, primary=True), Mark(location_of(text, 14, 18), label + " too")]
    lines = plain(excerpt(marks, gutter=1, width=width)).splitlines()
    assert max(map(cells, lines)) <= width
    assert " ".join(" ".join(lines).replace("|", " ").split()).count("contraction of sharded dims") == 2
