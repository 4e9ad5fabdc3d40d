"""The cheapest path between two layouts: A* over ``moves``, exact in time, then in collectives, then in local steps.

The bound on what is left is of information. A rank has to receive what it needs and does not hold. Where a sum over n
ranks is pending, n - 1 messages bring an element together on the first rank that has it, and each of the c - 1 other
ranks that are to have it receives it after that; spread over all ranks this is what a ring all-reduce receives. Where
links differ, the same is said of each set of slow axes, with the ranks that fast ones join taken as one, and the shares
add up: bytes over slow axes cost what all bytes cost, and more. A bound on collectives may assume that no byte more
than the bound on bytes is received, because a path that receives more takes longer than the bound says.
Source: Hart, Nilsson and Raphael 1968 (A*); Patarasuk and Yuan 2009 (the bound of all-reduce).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from .moves import DIGITS, Entries, Found, Move, Problem, State, moves


def shortest(problem: Problem) -> Sequence[Move] | None:
    """The moves from start to goal that cost least; None if there is no way."""
    dims, left = problem.dims, Remaining(problem)
    start = problem.start
    spent: dict[State, int] = {start: 0}
    bounds: dict[State, int] = {}
    came: dict[State, tuple[State, Found]] = {}
    order = 0
    # Of states that look alike the one that is furthest on its way comes first.
    queue: list[tuple[int, int, State, int]] = [(0, order, start, 0)]
    while queue:
        _, _, state, sofar = heapq.heappop(queue)
        if sofar != spent[state]:
            continue
        if state == problem.goal:
            return _path(came, state)
        for move in moves(problem, state, dims):
            now, after = sofar + move[0], move[3]
            before = spent.get(after)
            if before is None or now < before:
                spent[after] = now
                came[after] = state, move
                bound = bounds.get(after)
                if bound is None:
                    bound = bounds[after] = left(after)
                order -= 1
                heapq.heappush(queue, (now + bound, order, after, now))
    return None


def _path(came: dict[State, tuple[State, Found]], state: State) -> list[Move]:
    path = []
    while state in came:
        state, move = came[state]
        path.append(Move(*move))
    return path[::-1]


class Part(NamedTuple):
    """What the cut of one dim says of the way to the goal.

    ``cut``     bits of the axes that cut it.
    ``astray``  how many of them have to be taken off; ``away`` how many of these cut nothing at the goal.
    ``held``    the shorter of its shards, of the first rank; ``shared`` 0 where some rank has nothing of its new shard.
    ``even``    no rank holds less than another.
    """

    cut: int
    astray: int
    away: int
    held: int
    shared: int
    even: bool


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
        self.cut_bits = sum(1 << axis for axis in cut)
        self.moved = sum(1 << axis for axis in moved)
        self.parts: dict[tuple[int, tuple[int, ...]], Part] = {}
        self.exact = problem.even and not problem.made
        self.slower = self._levels(moved)
        self.copies = self.ranks // math.prod(problem.sizes[axis] for axis in cut)
        self.total = math.prod(problem.shape)
        sets = problem.together
        self.widest = max((one.bit_count() for one in sets), default=1) if sets is not None else max(1, len(moved))

    def __call__(self, state: State) -> int:
        time, collectives, local = self._least(state)
        return (time << DIGITS | collectives) << DIGITS | local

    def _least(self, state: State) -> tuple[int, int, int]:
        problem, (pending, entries) = self.problem, state
        waiting = pending & ~problem.goal[0]
        if problem.made & ~pending:
            return self._before_it_is_made(state)
        parts = [self._part(dim, entry) for dim, entry in enumerate(entries)]
        cut = 0
        for part in parts:
            cut |= part.cut
        collectives = self._rearranged(parts, cut, waiting)
        local = (self.cut_bits & ~cut & ~pending).bit_count()
        if not waiting:
            # Where shards are uneven, what the first rank holds.
            even = problem.even or all(part.even for part in parts)
            held = math.prod([part.shared if even else part.held for part in parts])
            time = (self.needed - held) * self.lightest
            return time + self._over_slow_axes(entries, waiting), collectives, local
        collectives += self._collectives(waiting.bit_count())
        if problem.made:
            return 0, collectives, local
        addends = math.prod(size for axis, size in enumerate(problem.sizes) if waiting >> axis & 1)
        received = self.total * (addends + self.copies - 2) // self.ranks
        return received * self.lightest + self._over_slow_axes(entries, waiting), collectives, local

    def _levels(self, moved: list[int]) -> list[tuple[int, frozenset[int], int]]:
        """The weights above the least: by how much each is more than the one before, the axes that are as slow or
        slower, and the ranks of the faster ones."""
        weights = sorted({self.problem.weights[axis] for axis in moved})
        found = []
        for before, weight in itertools.pairwise(weights):
            slow = frozenset(axis for axis in moved if self.problem.weights[axis] >= weight)
            fast = math.prod(self.problem.sizes[axis] for axis in moved if axis not in slow)
            found.append(((weight - before) * self.problem.itemsize, slow, fast))
        return found

    def _over_slow_axes(self, entries: Entries, waiting: int) -> int:
        """What bytes over slow axes cost above the least: ranks that faster ones join have to receive together what
        none of them holds."""
        if not self.slower:
            return 0
        return sum(more * (self._between(slow, entries, waiting) // fast) for more, slow, fast in self.slower)

    def _between(self, slow: frozenset[int], entries: Entries, waiting: int) -> int:
        """Elements that all ranks of one place on the ``slow`` axes receive of those at the other places."""
        problem, goal = self.problem, self.problem.goal[1]
        sizes = problem.sizes
        addends = math.prod(sizes[axis] for axis in slow if waiting >> axis & 1)
        if addends > 1:
            copies = math.prod(sizes[axis] for axis in slow if axis not in self.cut)
            return self.total * (addends + copies - 2) // math.prod(sizes[axis] for axis in slow)
        needed, held = 1, 1
        for dim, (old, new) in enumerate(zip(entries, goal, strict=True)):
            both = _shared(old, new)
            apart = both < min(len(old), len(new)) and old[both] in slow and new[both] in slow
            clean = all(axis in slow for axis in old[:both])
            wanted = problem.length(dim, tuple(axis for axis in new if axis in slow))
            needed *= wanted
            held *= 0 if apart and clean else min(wanted, problem.length(dim, tuple(a for a in old if a in slow)))
        return max(0, needed - held)

    def _before_it_is_made(self, state: State) -> tuple[int, int, int]:
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

    def _part(self, dim: int, entry: tuple[int, ...]) -> Part:
        found = self.parts.get((dim, entry))
        if found is None:
            problem, goal = self.problem, self.problem.goal[1][dim]
            both = _shared(entry, goal)
            nested = both == min(len(entry), len(goal))
            held = min(problem.length(dim, entry), problem.length(dim, goal))
            found = self.parts[dim, entry] = Part(
                _bits(entry),
                len(entry) - both,
                sum(1 for axis in entry[both:] if axis not in self.cut),
                held,
                held if nested else 0,
                _is_even(problem, dim, entry) and _is_even(problem, dim, goal),
            )
        return found

    def _rearranged(self, parts: list[Part], cut: int, waiting: int) -> int:
        """The fewest collectives that take axes off which stand where they do not stay, given that no byte more than
        the bound on bytes is received.

        Cuts and sums only add axes inside: what is not the beginning of the goal's has to be taken off. Only a gather
        ends a cut, and it does so on one dim. What it brings is wanted by all, so it takes no axis along that cuts
        something at the goal. Where a sum over three ranks or more is pending, ranks that only hold copies have to take
        their share of it, which is gathered afterwards.
        """
        count = away = places = 0
        for part in parts:
            count += part.astray
            away += part.away
            places += part.astray > 0
        least, ending = self._collectives(count), away > 0
        if ending and places > 1:
            return max(least, 2)
        if not self.exact:
            return least
        if waiting:
            addends = math.prod(size for axis, size in enumerate(self.problem.sizes) if waiting >> axis & 1)
            sharing = self.moved & ~(cut | self.cut_bits | waiting)
            at_once = self._collectives(waiting.bit_count()) == 1  # then all of them are summed alike
            mixed = at_once and waiting & self.cut_bits and waiting & ~self.cut_bits
            ending = ending or bool(sharing and addends > 2) or bool(mixed)
        return max(least, ending + (count > away))

    def _collectives(self, axes: int) -> int:
        """The fewest that so many axes take."""
        return -(-axes // self.widest)


def _shared(old: tuple[int, ...], new: tuple[int, ...]) -> int:
    """How many axes both begin with."""
    for count, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return count
    return min(len(old), len(new))


def _is_even(problem: Problem, dim: int, entry: tuple[int, ...]) -> bool:
    return not entry or problem.length(dim, entry) * problem.ranks(entry) == problem.shape[dim]


def _bits(axes: tuple[int, ...]) -> int:
    return sum(1 << axis for axis in axes)
