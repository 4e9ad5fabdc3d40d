"""A file before and after: its diff, and how it is written."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path


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
        lines = (self.before.splitlines(keepends=True), self.after.splitlines(keepends=True))
        return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))

    def write(self) -> None:
        """Put the new text into the file, or leave it as it is. Errors: OSError."""
        target = self.path.resolve()  # of a link, what it leads to
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with part.open("x", encoding="utf-8", newline="") as file:
                file.write(self.after)
            shutil.copymode(target, part)
            part.replace(target)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def read_source(path: Path) -> str:
    """The text of a file with the line ends that it has. Errors: OSError, UnicodeDecodeError."""
    with path.open(encoding="utf-8", newline="") as text:
        return text.read()
