"""How one sequence of calls left another: what was skipped, added, exchanged or replaced, by looking ahead.

path  a b c d e        mine  a b d e        at 2: mine skipped c, for d e match again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LOOK_AHEAD = 32
MOST_CALLS = 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """``what`` is skipped, extra, swapped or replaced; ``count`` calls; ``evidence`` calls match again after it."""

    what: str
    count: int
    evidence: int


def explain(path: Sequence[object], mine: Sequence[object]) -> Explanation | None:
    """Why ``mine`` differs from ``path`` at their first calls; None if no later call tells.

    The explanation after which most calls match counts, and of several the smallest.
    """
    candidates = [("replaced", 1, 1, 1)]
    for count in range(1, MOST_CALLS + 1):
        candidates += [("skipped", count, count, 0), ("extra", count, 0, count)]
    if len(path) > 1 and len(mine) > 1 and path[0] == mine[1] and path[1] == mine[0]:
        candidates.insert(0, ("swapped", 2, 2, 2))
    best: Explanation | None = None
    for what, count, of_path, of_mine in candidates:
        expected, found = path[of_path : of_path + LOOK_AHEAD], mine[of_mine : of_mine + LOOK_AHEAD]
        length = min(len(expected), len(found))
        evidence = next((n for n in range(length) if expected[n] != found[n]), length)
        # A first call that does not match again disproves it; one that breaks off later is another difference.
        if evidence and (best is None or evidence > best.evidence):
            best = Explanation(what, count, evidence)
    return best
