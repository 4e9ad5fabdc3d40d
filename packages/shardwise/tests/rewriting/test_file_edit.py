"""Is a file read, shown and written as Python has it, whatever its encoding and its line ends are?"""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwise.diagnostics.source_location import lines_of
from shardwise.rewriting.file_edit import FileEdit, encoded, read_source

FILES = {
    "Latin-1": "# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1"),
    "a byte-order mark": b"\xef\xbb\xbfname = '\xc3\xa9'\n",
    "line ends of DOS": "name = 'é'\r\n".encode(),
    "no last line end": "name = 'é'".encode(),
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_keeps_its_encoding_and_line_ends(file: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_bytes(FILES[file])
    before = read_source(path)
    assert "name = 'é'" in before
    FileEdit(path, before, before.replace("name", "other")).write()
    assert path.read_bytes() == FILES[file].replace(b"name", b"other")


def test_a_text_is_tried_in_the_encoding_that_it_declares() -> None:
    text = FILES["Latin-1"].decode("latin-1")
    assert encoded(text) == FILES["Latin-1"]
    assert encoded("name = 'é'\n") == "name = 'é'\n".encode()


def test_lines_are_those_of_python(tmp_path: Path) -> None:
    """A form feed, and what else str.splitlines takes for a line end, ends none."""
    text = "a = 1\n\x0c\nb = '\u2028\x1c'\r\nc = 2\rd = 3"
    assert lines_of(text) == ["a = 1\n", "\x0c\n", "b = '\u2028\x1c'\r\n", "c = 2\r", "d = 3"]
    assert lines_of(text, ends=False)[-2:] == ["c = 2", "d = 3"]
    assert len(lines_of(text)) == 5
    assert lines_of("") == []


def test_a_diff_counts_lines_as_patch_does(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    before = "a = 1\n\x0c\nb = 2\nc = '\u2028'\nd = 4\n"
    assert "@@ -2,4 +2,4 @@\n \x0c\n b = 2\n" in FileEdit(path, before, before.replace("d = 4", "d = 5")).diff
