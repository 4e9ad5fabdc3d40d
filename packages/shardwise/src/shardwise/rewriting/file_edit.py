"""A file before and after: its diff, and how it is written."""

from __future__ import annotations

import difflib
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
            name = self.path
        lines = (self.before.splitlines(keepends=True), self.after.splitlines(keepends=True))
        return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))

    def write(self) -> None:
        """Put the new text into the file. Errors: OSError."""
        with self.path.open("w", encoding="utf-8", newline="") as file:
            file.write(self.after)


def read_source(path: Path) -> str:
    """The text of a file with the line ends that it has. Errors: OSError, UnicodeDecodeError."""
    with path.open(encoding="utf-8", newline="") as text:
        return text.read()
