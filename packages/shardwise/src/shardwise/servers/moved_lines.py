"""Where the lines of a text are after somebody has written in it, and where they were before."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache

from lsprotocol import types

from shardwise.diagnostics.source_location import lines_of

CAREFULLY = 1_000_000
"""Pairs of lines up to which the longest common stretches are looked for."""


@dataclass(frozen=True)
class MovedLines:
    """Lines, counted from 0, that are the same in two texts: ``now`` by where they were, ``then`` by where they are."""

    now: dict[int, int]
    then: dict[int, int]

    def range_now(self, span: types.Range) -> types.Range | None:
        """Where ``span`` is now; None if a line of it has changed, or has lines between that it had not."""
        first, last = self.now.get(span.start.line), self.now.get(span.end.line)
        if first is None or last is None or last - first != span.end.line - span.start.line:
            return None
        return types.Range(types.Position(first, span.start.character), types.Position(last, span.end.character))

    def position_then(self, position: types.Position) -> types.Position | None:
        """Where ``position`` was; None if its line has changed."""
        line = self.then.get(position.line)
        return None if line is None else types.Position(line, position.character)


@lru_cache(maxsize=16)
def moved_lines(before: str, after: str) -> MovedLines:
    """The lines that ``after`` still has of ``before``."""
    old, new = lines_of(before, ends=False), lines_of(after, ends=False)
    same = _same_at_the_start(old, new)
    ends = _same_at_the_start(old[same:][::-1], new[same:][::-1])
    now = {line: line for line in range(same)}
    now |= {len(old) - back: len(new) - back for back in range(1, ends + 1)}
    inner_old, inner_new = old[same : len(old) - ends], new[same : len(new) - ends]
    # Whoever types waits for this: in much text that has changed, lines that are everywhere tell nothing.
    junk = len(inner_old) * len(inner_new) > CAREFULLY
    for one in difflib.SequenceMatcher(None, inner_old, inner_new, autojunk=junk).get_matching_blocks():
        now |= {same + one.a + at: same + one.b + at for at in range(one.size)}
    return MovedLines(now, {new_line: old_line for old_line, new_line in now.items()})


def _same_at_the_start(one: list[str], other: list[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
