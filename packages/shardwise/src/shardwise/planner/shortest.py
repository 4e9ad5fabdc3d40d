"""The cheapest path between two layouts: A* over ``moves``, exact in time, then in collectives, then in local steps.

The bound on what is left is of information. A rank has to receive what it needs and does not hold. Where a sum over n
ranks is pending, n - 1 messages bring an element together on the first rank that has it, and each of the c - 1 other
ranks that are to have it receives it after that; spread over all ranks this is what a ring all-reduce receives.
Source: Hart, Nilsson and Raphael 1968 (A*); Patarasuk and Yuan 2009 (the bound of all-reduce).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from .moves import Move, Problem, State, moves, overlap

Spent = tuple[int, int, int]


def shortest(problem: Problem) -> Sequence[Move] | None:
    """The moves from start to goal that cost least; None if there is no way."""
    dims, left = problem.dims, Remaining(problem)
    start = problem.start
    spent: dict[State, Spent] = {start: (0, 0, 0)}
    came: dict[State, tuple[State, Move]] = {}
    order = 0
    # Of states that look alike the one that is furthest on its way comes first.
    queue: list[tuple[int, int, int, int, State, Spent]] = [(0, 0, 0, order, start, (0, 0, 0))]
    while queue:
        *_, state, sofar = heapq.heappop(queue)
        if sofar != spent[state]:
            continue
        if state == problem.goal:
            return _path(came, state)
        time, collectives, steps = sofar
        for move in moves(problem, state, dims):
            after = move.after
            now = (time + move.weight, collectives + move.collective, steps + 1 - move.collective)
            before = spent.get(after)
            if before is None or now < before:
                spent[after] = now
                came[after] = state, move
                order -= 1
                more = left(after)
                heapq.heappush(queue, (now[0] + more[0], now[1] + more[1], now[2] + more[2], order, after, now))
    return None


def _path(came: dict[State, tuple[State, Move]], state: State) -> list[Move]:
    path = []
    while state in came:
        state, move = came[state]
        path.append(move)
    return path[::-1]


class Remaining:
    """Least time and collectives from a state to the goal."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        moved = [axis for axis in range(len(problem.sizes)) if not problem.fixed & (1 << axis)]
        self.lightest = min((problem.weights[axis] for axis in moved), default=0) * problem.itemsize
        self.needed = problem.elements(problem.goal[1])
        self.ranks = math.prod(problem.sizes[axis] for axis in moved)
        cut = [axis for entry in problem.goal[1] for axis in entry]
        self.cut = frozenset(cut)
        self.copies = self.ranks // math.prod(problem.sizes[axis] for axis in cut)
        self.total = math.prod(problem.shape)
        sets = problem.together
        self.widest = max((one.bit_count() for one in sets), default=1) if sets is not None else max(1, len(moved))

    def __call__(self, state: State) -> Spent:
        problem, (pending, entries) = self.problem, state
        goal_pending, goal = problem.goal
        waiting = pending & ~goal_pending
        if problem.made & ~pending:
            return self._before_it_is_made(state)
        # Cuts and sums only add axes inside: what is not the beginning of the goal's has to be taken off.
        astray = sum(len(old) - _shared(old, new) for old, new in zip(entries, goal, strict=True))
        cut = {axis for entry in entries for axis in entry}
        local = sum(1 for axis in self.cut if axis not in cut and not pending >> axis & 1)
        if not waiting:
            held = overlap_of_first(problem, entries)
            return (self.needed - held) * self.lightest, self._collectives(astray), local
        collectives = self._collectives(astray) + self._collectives(waiting.bit_count())
        if problem.made:
            return 0, collectives, local
        addends = math.prod(size for axis, size in enumerate(problem.sizes) if waiting >> axis & 1)
        received = self.total * (addends + self.copies - 2) // self.ranks
        return received * self.lightest, collectives, local

    def _before_it_is_made(self, state: State) -> Spent:
        """While some axis is not yet pending that is to be: whoever of its ranks has an element may keep it, the others
        put zeros, so all of them together need it once."""
        problem, (pending, entries) = self.problem, state
        made = {axis for axis in range(len(problem.sizes)) if problem.made & ~pending & (1 << axis)}
        astray, held, sharing = 0, 1, math.prod(problem.sizes[axis] for axis in made)
        for dim, (old, new) in enumerate(zip(entries, problem.goal[1], strict=True)):
            rest = tuple(axis for axis in old if axis not in made)
            astray += len(rest) - _shared(rest, new)
            held *= min(problem.length(dim, rest), problem.length(dim, new))
        waiting = (pending & ~problem.goal[0]).bit_count()
        time = 0 if waiting else max(0, self.needed - held) // sharing * self.lightest
        return time, self._collectives(astray) + self._collectives(waiting), len(made)

    def _collectives(self, axes: int) -> int:
        """The fewest that so many axes take."""
        return -(-axes // self.widest)


def _shared(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    """How many axes both begin with."""
    for count, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return count
    return min(len(old), len(new))


def overlap_of_first(problem: Problem, entries: tuple[tuple[int, ...], ...]) -> int:
    """What a rank that has to receive most holds already; where shards are uneven, what the first rank holds."""
    both = (*enumerate(entries), *enumerate(problem.goal[1]))
    if problem.even or all(_is_even(problem, dim, entry) for dim, entry in both):
        return overlap(problem, entries, problem.goal[1])
    count = 1
    for dim, (old, new) in enumerate(zip(entries, problem.goal[1], strict=True)):
        count *= min(problem.length(dim, old), problem.length(dim, new))
    return count


def _is_even(problem: Problem, dim: int, entry: tuple[int, ...]) -> bool:
    return not entry or problem.length(dim, entry) * problem.ranks(entry) == problem.shape[dim]
