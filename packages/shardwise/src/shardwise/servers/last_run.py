"""The last run of a project, kept in the user's cache, so that an editor shows it at once while the next one goes on.

It is shown only if no file that it is about has changed since: what is found stands where it was found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardwise.configuration.whole_file import write_whole
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.formats import from_json
from shardwise.diagnostics.result import RunResult

DAMAGED = (OSError, UnicodeDecodeError, SpmdTypeError, ValueError, KeyError, TypeError)
"""What reading a file may raise that somebody else has written into."""


def cache_folder() -> Path:
    """Where programs of this user keep what they can make again."""
    default = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "shardwise"


def file_of(command: Sequence[str], folder: Path) -> Path:
    """The file of the last run of ``command`` in ``folder``."""
    said = "\0".join([str(folder.resolve()), *command])
    return cache_folder() / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.json"


def keep(text: str, command: Sequence[str], folder: Path) -> None:
    """Write the JSON of a run; whoever has no place for it goes without."""
    file = file_of(command, folder)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())


def last_run(command: Sequence[str], folder: Path) -> RunResult | None:
    """The result of the last run; None if there is none, or if a file that it is about has changed since."""
    file = file_of(command, folder)
    try:
        written = file.stat().st_mtime
        result = from_json(file.read_text("utf-8"))
        changed = any((folder / name).stat().st_mtime > written for name in _files(result))
    except DAMAGED:
        return None
    return None if changed else result


def _files(result: RunResult) -> Iterator[str]:
    """The files that findings and types stand in."""
    for finding in result.findings:
        for place in finding.places:
            if place.location is not None and not place.location.file.startswith("<"):
                yield place.location.file
    if result.record is not None:
        yield from result.record.files
