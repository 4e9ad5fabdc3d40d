"""A file before and after: its diff, and how it is written."""

from __future__ import annotations

import difflib
import errno
import io
import os
import tokenize
from dataclasses import dataclass
from pathlib import Path

from shardwise.configuration.whole_file import write_whole
from shardwise.diagnostics.source_location import lines_of


@dataclass(frozen=True)
class FileEdit:
    """A file of the program before and after."""

    path: Path
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as ``diff -u`` shows it."""
        try:
            name = self.path.relative_to(Path.cwd())
        except ValueError:
            name = self.path.relative_to(self.path.anchor)
        lines = (lines_of(self.before), lines_of(self.after))
        return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))

    def write(self) -> None:
        """Put the new text into the file, or leave it as it is. Errors: OSError."""
        self._put(self.after)

    def require_writable(self) -> None:
        """Errors: OSError for a file that is read-only, or has another text than the one that was edited."""
        if not (os.access(self.path, os.W_OK) and self.path.stat().st_mode & 0o222):  # the superuser may write anything
            raise PermissionError(errno.EACCES, "it is read-only")
        try:
            same = read_source(self.path) == self.before
        except UnicodeDecodeError:
            same = False
        if not same:
            raise OSError(errno.ESTALE, "it has changed since it was read")

    def undo(self) -> None:
        """Put the text back that was before. Errors: OSError."""
        self._put(self.before)

    def _put(self, text: str) -> None:
        write_whole(self.path, text.encode(_encoding(self.path.read_bytes())))


def read_source(path: Path) -> str:
    """The text of a file, in the encoding that it declares, with the line ends that it has.

    Errors: OSError, UnicodeDecodeError.
    """
    source = path.read_bytes()
    return source.decode(_encoding(source))


def encoded(text: str) -> bytes:
    """What a file has whose text this is."""
    source = text.encode()
    return text.encode(_encoding(source), "replace")


def _encoding(source: bytes) -> str:
    """What a line like ``# -*- coding: latin-1 -*-`` says, or a byte-order mark; else UTF-8."""
    try:
        return tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    except SyntaxError:  # neither what it declares nor UTF-8; who decodes it says so
        return "utf-8"
