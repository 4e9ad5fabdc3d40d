"""The one policy on the length of what is printed, and how to see the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

SHOW_ALL = "--all"
"""The command-line option that lifts every limit."""


@dataclass(frozen=True)
class Limits:
    """Counts above which a form for people stops; None shows everything. Forms for programs have no limits."""

    findings: int | None = 20
    trusted: int | None = 5
    lost: int | None = 5
    unchecked: int | None = 0
    held_back: int | None = 0
    no_rule_ops: int | None = 10
    facts: int | None = 8
    operand_notes: int | None = 4
    places: int | None = 8
    repr_characters: int = 80

    def without(self, lists: Iterable[str]) -> Limits:
        """The same, but the named lists are shown whole."""
        whole: dict[str, Any] = dict.fromkeys(name.replace("-", "_") for name in lists)
        return replace(self, **whole)


DEFAULT = Limits()
EVERYTHING = Limits(None, None, None, None, None, None, None, None, None)
LISTS = ("trusted", "lost", "unchecked", "held-back")
"""What ``--show`` lists without a limit."""


def rest(total: int, limit: int | None, one: str, several: str) -> str | None:
    """The line that says what was left out and how to see it; None if nothing was."""
    if limit is None or total <= limit:
        return None
    more = total - limit
    return f"and {more} more {one if more == 1 else several}; {SHOW_ALL} shows {'it' if more == 1 else 'them'}"


def counted(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
