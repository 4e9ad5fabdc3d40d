"""The folder that a report is written to: made beside its place, moved there when whole, never over foreign files.

Names of files come from ids and hashes. Where a name of the log must appear in one, ``safe_name`` makes it harmless.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tracewise.read.archive import InputError

MARKER = ".tracewise"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
DEVICES = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
MAX_NAME_BYTES = 100


def safe_name(name: str) -> str:
    """A file name of harmless characters: no separator, no leading dot, no device, at most 100 bytes."""
    name = UNSAFE.sub("_", name)[:MAX_NAME_BYTES].lstrip(".") or "_"
    return f"_{name}"[:MAX_NAME_BYTES] if DEVICES.match(name) else name


class OutputFolder:
    """Writes new files below ``root`` and nowhere else."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._made: set[Path] = set()
        self.written_bytes = 0

    def write(self, name: str, *parts: bytes) -> None:
        """A new file of these parts. ``name`` is relative, with slashes; ValueError if it would leave the folder."""
        self.write_parts(name, parts)

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """The same for parts that are made while they are written."""
        path = self.path(name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o644)
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                self.written_bytes += file.write(part)

    def path(self, name: str) -> Path:
        """Where a file of that name goes; its folder is made."""
        parts = name.split("/")
        if not all(parts) or any(part != safe_name(part) for part in parts):
            raise ValueError(f"{name!r} is not made of safe names")
        parent = self.root.joinpath(*parts[:-1])
        if parent not in self._made:
            parent.mkdir(parents=True, exist_ok=True)
            if not parent.resolve().is_relative_to(self.root):
                raise ValueError(f"{name!r} would leave {self.root}")
            self._made.add(parent)
        return parent / parts[-1]


@contextmanager
def new_folder(target: Path, *, overwrite: bool) -> Iterator[OutputFolder]:
    """An output folder that appears at ``target`` when the block ends well, and leaves nothing behind when not."""
    target = Path(os.path.abspath(target))
    check_target(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        folder = OutputFolder(made)
        (made / MARKER).write_text("made by tracewise\n")
        yield folder
        made.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            os.rename(target, old / target.name)
            os.rename(made, target)
            shutil.rmtree(old)
        else:
            os.rename(made, target)
    finally:
        if made.exists():
            shutil.rmtree(made)


def check_target(target: Path, overwrite: bool) -> None:
    """InputError if ``target`` may not be written to."""
    if target.is_symlink():
        raise InputError(f"{target}: is a link; give the folder itself")
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{target}: is a file; give another folder with -o")
    if not any(target.iterdir()):
        return
    if not (target / MARKER).is_file():
        raise InputError(f"{target}: holds files that tracewise did not write; give another folder with -o")
    if not overwrite:
        raise InputError(f"{target}: exists; give another folder with -o, or --overwrite to replace it")
