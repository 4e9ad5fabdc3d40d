"""Is a file read, shown and written as Python has it, whatever its encoding and its line ends are?"""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from shardwise.cli.options.output_file import write_edits
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


def edit_of(path: Path, text: str = "a = 1\n") -> FileEdit:
    path.write_text(text)
    return FileEdit(path, text, text.replace("1", "2"))


def test_all_files_of_a_fix_are_changed_or_none(tmp_path: Path) -> None:
    edits = [edit_of(tmp_path / name) for name in ("first.py", "second.py")]
    edits[1].path.chmod(0o444)
    with pytest.raises(click.UsageError, match=r"second.py: it is read-only; all files are as they were"):
        write_edits(edits)
    assert [edit.path.read_text() for edit in edits] == ["a = 1\n", "a = 1\n"]


def test_what_was_written_is_taken_back_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = [edit_of(tmp_path / name) for name in ("first.py", "second.py")]
    written = FileEdit.write

    def write(edit: FileEdit) -> None:
        if edit is edits[1]:
            raise OSError(28, "no space left on device")
        written(edit)

    monkeypatch.setattr(FileEdit, "write", write)
    with pytest.raises(click.UsageError, match="no space left"):
        write_edits(edits)
    assert [edit.path.read_text() for edit in edits] == ["a = 1\n", "a = 1\n"]


def test_a_file_that_has_changed_meanwhile_is_left(tmp_path: Path) -> None:
    edit = edit_of(tmp_path / "program.py")
    edit.path.write_text("a = 1\nb = 1  # written while the fix was tried\n")
    with pytest.raises(click.UsageError, match="it has changed since it was read; it is as it was"):
        write_edits([edit])
    assert "written while" in edit.path.read_text()


def test_a_link_stays_one(tmp_path: Path) -> None:
    edit = edit_of(tmp_path / "program.py")
    link = tmp_path / "link.py"
    link.symlink_to(edit.path)
    write_edits([FileEdit(link, edit.before, edit.after)])
    assert link.is_symlink()
    assert edit.path.read_text() == "a = 2\n"
