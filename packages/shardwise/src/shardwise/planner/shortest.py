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

from .moves import DIGITS, Found, Move, Problem, State, moves


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
    least: int | None = None  # of the ways to the goal that have been seen
    while queue:
        _, _, state, sofar = heapq.heappop(queue)
        if sofar != spent[state]:
            continue
        if state == problem.goal:
            return _path(came, state)
        for move in moves(problem, state, dims):
            now, after = sofar + move[0], move[3]
            if least is not None and now >= least:
                continue
            before = spent.get(after)
            if before is None or now < before:
                spent[after] = now
                came[after] = state, move
                bound = bounds.get(after)
                if bound is None:
                    bound = bounds[after] = left(after)
                if after == problem.goal:
                    least = now
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
    ``held``    the shorter of its shards, of the first rank.
    ``bare``    the most elements that some rank needs which has nothing of its new shard; 0 if all have something.
    ``slow``    for every level of slow axes: the most that ranks which fast ones join hold of this dim's new shard, and
                the most elements that such ranks need which have nothing of it, and what a rank receives at least in a
                collective that takes a slow axis off.
    """

    cut: int
    astray: int
    away: int
    held: int
    bare: int
    slow: tuple[tuple[int, int, int], ...]


class Level(NamedTuple):
    """A weight above the least: ``more`` than the one before, the axes that are as slow or slower, the ranks of the
    faster ones, and what the ranks of one place on the slow axes need: how much of each dim, and how many elements."""

    more: int
    slow: frozenset[int]
    fast: int
    lengths: tuple[int, ...]
    needed: int


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
        self.all = frozenset(range(len(problem.sizes)))
        self.moved = sum(1 << axis for axis in moved)
        self.parts: dict[tuple[int, tuple[int, ...]], Part] = {}
        self.sums: dict[int, int] = {}
        self.bare: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self.exact = problem.even and not problem.made
        self.slower = self._levels(moved)
        self.never = (0,) * (1 + len(self.slower))
        self.total = math.prod(problem.shape)
        self.off = list(map(self._received_off, range(len(problem.sizes))))
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
        known, parts = self.parts.get, []
        cut = bare = 0
        held = 1
        for dim, entry in enumerate(entries):
            part = known((dim, entry)) or self._part(dim, entry)
            parts.append(part)
            cut |= part.cut
            held *= part.held
            if part.bare > bare:
                bare = part.bare
        collectives = self._rearranged(parts, cut, waiting)
        local = (self.cut_bits & ~cut & ~pending).bit_count()
        if waiting:
            collectives += self._collectives(waiting.bit_count())
            if problem.made:
                return 0, collectives, local
            time = self.sums.get(waiting)
            if time is None:
                time = self.sums[waiting] = self._of_a_sum(waiting)
        else:
            time = max(self.needed - held, bare) * self.lightest
        for at, level in enumerate(self.slower):
            if not waiting or not any(waiting >> axis & 1 for axis in level.slow):
                held, bare, least = 1, 0, 0
                for part in parts:
                    has, lacks, off = part.slow[at]
                    held *= has
                    if lacks > bare:
                        bare = lacks
                    if off > least:
                        least = off
                time += level.more * max((level.needed - held) // level.fast, bare // level.fast, least)
        return time, collectives, local

    def _of_a_sum(self, waiting: int) -> int:
        """The time of what all ranks receive for a sum, shared alike; and a rank that needs an element receives it, or
        what it lacks of the sum. Over slow axes likewise, if the sum is over one of them."""
        time = self._received(self.moved, waiting, self.ranks, self.needed) * self.lightest
        for level in self.slower:
            if any(waiting >> axis & 1 for axis in level.slow):
                places = math.prod(self.problem.sizes[axis] for axis in level.slow)
                axes = sum(1 << axis for axis in level.slow)
                time += level.more * (self._received(axes, waiting, places, level.needed) // level.fast)
        return time

    def _received(self, axes: int, waiting: int, places: int, needed: int) -> int:
        """Elements that one of the ``places`` on ``axes`` receives at least for a sum, of which it needs ``needed``."""
        sizes = self.problem.sizes
        addends = math.prod(size for axis, size in enumerate(sizes) if waiting & axes & (1 << axis))
        copies = math.prod(size for axis, size in enumerate(sizes) if axes & ~self.cut_bits & (1 << axis))
        return max(needed, self.total * (addends + copies - 2) // places)

    def _received_off(self, axis: int) -> int:
        """What the first rank receives at least in a collective that takes ``axis`` off.

        A gather brings as much as it holds, or more, and an exchange what is new of as much: all, or what it has not
        where another axis or dim is cut instead, which is most of it as long as two lines are left to cut.
        """
        problem, size = self.problem, self.problem.sizes[axis]
        most = -(-self.total // self.ranks)
        if problem.even:
            return most * (size - 1) // size
        return most // 4 if all(length > self.ranks // size for length in problem.shape) else 0

    def _levels(self, moved: list[int]) -> list[Level]:
        """The weights above the least."""
        problem = self.problem
        weights = sorted({problem.weights[axis] for axis in moved})
        found = []
        for before, weight in itertools.pairwise(weights):
            slow = frozenset(axis for axis in moved if problem.weights[axis] >= weight)
            fast = math.prod(problem.sizes[axis] for axis in moved if axis not in slow)
            lengths = tuple(problem.length(dim, _of(slow, new)) for dim, new in enumerate(problem.goal[1]))
            found.append(Level((weight - before) * problem.itemsize, slow, fast, lengths, math.prod(lengths)))
        return found

    def _part(self, dim: int, entry: tuple[int, ...]) -> Part:
        problem, goal = self.problem, self.problem.goal[1][dim]
        both = _shared(entry, goal)
        length = problem.length(dim, entry)
        cut = sum([1 << axis for axis in entry])
        bare, *slow_bare = self._bare(dim, both, entry[both]) if both < min(len(entry), len(goal)) else self.never
        slow = []
        for level, lacks in zip(self.slower, slow_bare, strict=True):
            wanted, has = level.lengths[dim], length
            for axis in entry:
                if axis not in level.slow:
                    has *= problem.sizes[axis]
            off = [self.off[axis] for axis in entry[both:] if axis in level.slow]
            slow.append((min(wanted, has), lacks, max(off, default=0)))
        found = self.parts[dim, entry] = Part(
            cut,
            len(entry) - both,
            len([axis for axis in entry[both:] if axis not in self.cut]),
            min(length, problem.length(dim, goal)),
            bare,
            tuple(slow),
        )
        return found

    def _bare(self, dim: int, both: int, parting: int) -> tuple[int, ...]:
        """What a rank needs in all that stands where its old shard of ``dim`` and its new one do not meet, or 0; and
        for every level what ranks that fast axes join need together.

        They part at the axes ``parting`` and ``new[both]``: a rank that is first on one of them and far enough on the
        other has nothing.
        """
        found = self.bare.get((dim, both, parting))
        if found is None:
            new = self.problem.goal[1][dim]
            length = self.problem.length(dim, new[:both])
            most = [0] * (1 + len(self.slower))
            for one, other in ((parting, new[both]), (new[both], parting)):
                # Of the first piece by `other` the rank has, or needs, at most all.
                step, far = (-(-length // self.problem.sizes[axis]) for axis in (one, other))
                place = -(-far // step)
                if place < self.problem.sizes[one]:
                    for at, axes in enumerate([self.all, *(level.slow for level in self.slower)]):
                        if axes.issuperset((*new[: both + 1], parting)):
                            most[at] = max(most[at], self._needed_at(one, place, axes))
            found = self.bare[dim, both, parting] = tuple(most)
        return found

    def _needed_at(self, axis: int, place: int, axes: frozenset[int]) -> int:
        """The elements that the rank needs which is first on all ``axes`` but one; 0 if it is not sure."""
        count = 1
        for length, entry in zip(self.problem.shape, self.problem.goal[1], strict=True):
            if axis in entry and not axes.issuperset(entry[: entry.index(axis)]):
                return 0
            for one in _of(axes, entry):
                piece = -(-length // self.problem.sizes[one])
                length = max(0, min(piece, length - place * piece)) if one == axis else piece
            count *= length
        return count

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


def _of(axes: frozenset[int], entry: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in entry if axis in axes)


def _bits(axes: tuple[int, ...]) -> int:
    return sum(1 << axis for axis in axes)
