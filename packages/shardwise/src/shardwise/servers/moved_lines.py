"""Where the lines of a text are after somebody has written in it, and where they were before."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache

from lsprotocol import types

from shardwise.diagnostics.source_location import lines_of


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
    if old == new:
        same = {line: line for line in range(len(old))}
        return MovedLines(same, same)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    now = {one.a + at: one.b + at for one in matcher.get_matching_blocks() for at in range(one.size)}
    return MovedLines(now, {new_line: old_line for old_line, new_line in now.items()})
