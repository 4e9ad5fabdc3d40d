"""Files that a command writes: they are asked for before anything is run, and what the user has is not written over."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import click

from shardwise.rewriting.file_edit import FileEdit

PAGE, JSON, ARCHIVE = b"<", b"{", b"PK"
"""How a file of the kind begins."""


def require_writable(option: str, file: str | Path | None, begins: bytes) -> None:
    """A usage error if no file can be written there, or one is there that begins otherwise, as a script does."""
    if file is None:
        return
    folder = Path(file).absolute().parent
    if not str(file):
        file, why = "''", "the name is empty"
    elif Path(file).is_dir():
        why = "it is a folder"
    elif not (folder.is_dir() and os.access(folder, os.W_OK)):
        why = f"{folder} {'is not writable' if folder.is_dir() else 'is no folder'}"
    elif _has_other_content(Path(file), begins):
        why = "it is there, and holds something else"
    else:
        return
    raise click.UsageError(f"{option} {file}: cannot be written, because {why}; name another file")


def write_edits(edits: Iterable[FileEdit]) -> None:
    """Change the files. A usage error if one of them cannot be written, or is another by now; then all are left."""
    written: list[FileEdit] = []
    edits = list(edits)
    edit = None
    try:
        for edit in edits:
            edit.require_writable()
        for edit in edits:
            edit.write()
            written.append(edit)
    except OSError as error:
        for one in written:
            with contextlib.suppress(OSError):
                one.undo()
        left = "it is as it was" if len(edits) == 1 else "all files are as they were"
        raise click.UsageError(f"cannot write {edit and edit.path}: {error.strerror}; {left}") from error


def _has_other_content(file: Path, begins: bytes) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as there:
            found = there.read(len(begins))
    except OSError:
        return False  # whoever writes says so
    return found not in (b"", begins)
