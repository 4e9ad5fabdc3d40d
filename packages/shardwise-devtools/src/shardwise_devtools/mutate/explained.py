"""Which survivors and false alarms have been looked at, and why are they what they are? A TOML file beside the program.

One entry names mutants by what the report shows of them, with ``*`` for anything:

    [[explained]]
    place = "train.py:*"
    operator = "denominator"
    after = "*get_world_size()*"
    reason = "a plain number says nothing to types; shardwise verify sees it"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from shardwise.diagnostics.errors import SpmdValueError

from .operators import Mutant

_FIELDS = ("place", "operator", "before", "after", "reason")


@dataclass(frozen=True)
class Explained:
    """A reason, and patterns of the mutants that it is for."""

    reason: str
    place: str = "*"
    operator: str = "*"
    before: str = "*"
    after: str = "*"

    def covers(self, mutant: Mutant) -> bool:
        shown = (mutant.place, mutant.operator, mutant.before, mutant.after)
        wanted = (self.place, self.operator, self.before, self.after)
        return all(fnmatchcase(text, pattern) for text, pattern in zip(shown, wanted, strict=True))


def read_explained(path: Path) -> tuple[Explained, ...]:
    """The entries of the file at ``path``. Errors: SW905 (also a ValueError) for anything but such entries."""
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SpmdValueError(f"cannot read {path}: {error}") from None
    entries = found.pop("explained", [])
    if found or not isinstance(entries, list):
        raise SpmdValueError(f"{path} has {', '.join(found) or 'no list'}, expected [[explained]] entries only")
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, 1))


def _entry(path: Path, number: int, entry: object) -> Explained:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise SpmdValueError(f"entry {number} of {path} is not a table of texts")
    unknown = [name for name in entry if name not in _FIELDS]
    if unknown or "reason" not in entry:
        what = f"unknown {', '.join(unknown)}" if unknown else "no reason"
        raise SpmdValueError(f"entry {number} of {path} has {what}, expected {', '.join(_FIELDS)}")
    return Explained(**entry)


def reason_for(mutant: Mutant, explained: tuple[Explained, ...]) -> str:
    """The first reason that covers ``mutant``; empty if none does."""
    return next((one.reason for one in explained if one.covers(mutant)), "")
