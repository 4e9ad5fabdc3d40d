"""How much is left to do: what every way from a layout to the goal of a move costs at least, for the search.

The bound on what is left is of information. A rank has to receive what it needs and does not hold. Where a sum over n
ranks is pending, n - 1 messages bring an element together on the first rank that has it, and each of the c - 1 other
ranks that are to have it receives it after that; spread over all ranks this is what a ring all-reduce receives. Where
links differ, the same is said of each set of slow axes, with the ranks that fast ones join taken as one, and the shares
add up: bytes over slow axes cost what all bytes cost, and more. Where an axis is to be pending at the end, any of its
ranks may keep an element for all: until it is pending these ranks are taken as one, and share what they receive.
A bound on collectives may assume that no byte more than the bound on bytes is received, because a path that receives
more takes longer than the bound says.
Source: Patarasuk and Yuan 2009 (the bound of all-reduce).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .cuts import bits_of
from .problem import DIGITS, Problem


class Part(NamedTuple):
    """What the cut of one dim says of the way to the goal.

    ``cut``     bits of the axes that cut it.
    ``both``    how many axes the old cut and the new one begin with alike.
    ``astray``  how many others have to be taken off; ``away`` how many of these cut nothing at the goal.
    ``levels``  for every level how many ranks fast axes join; the most that these hold of this dim's new shard; the
                most elements that such ranks need which have nothing of it, 0 if all have something; and what a rank
                receives at least in a collective that takes a slow axis off.
    """

    cut: int
    both: int
    astray: int
    away: int
    levels: tuple[tuple[int, int, int, int], ...]


class CutLeft(NamedTuple):
    """What the cut of all dims says of it.

    ``bits``    of the axes that cut.
    ``astray``, ``away``  of all dims together, and on how many dims, ``places``, there is one astray.
    ``times``   at every level, if no sum is pending over its axes.
    ``least``   if none is pending at all, as the digits of one number: time, collectives, and local steps.
    """

    bits: int
    astray: int
    away: int
    places: int
    times: list[int]
    least: int


class Level(NamedTuple):
    """A weight, the least of which is that of all axes: ``more`` than the one before, the axes that are as slow or
    slower with their number of ranks, the ranks of the faster ones, and what the ranks of one place on the slow axes
    need: how much of each dim, and how many elements."""

    more: int
    slow: frozenset[int]
    bits: int
    places: int
    fast: int
    lengths: tuple[int, ...]
    needed: int


class Remaining:
    """Least time and collectives from a state to the goal.

    ``as_one``  bits of the axes that are to be pending and are not, whose ranks are taken as one.
    """

    def __init__(self, problem: Problem, as_one: int = 0) -> None:
        self.problem, self.as_one = problem, as_one
        still = problem.fixed | problem.made
        moved = [axis for axis in range(len(problem.sizes)) if not still & (1 << axis)]
        self.sharing = math.prod(size for axis, size in enumerate(problem.sizes) if as_one & (1 << axis))
        self.others: dict[int, Remaining] = {}
        self.ranks = math.prod(problem.sizes[axis] for axis in moved)
        self.cut_bits = sum(map(bits_of, problem.goal[1]))
        self.moved = bits_of(tuple(moved))
        self.total = math.prod(problem.shape)
        self.levels = self._levels(moved)
        self.parts: dict[tuple[int, tuple[int, ...]], Part] = {}
        self.cuts: dict[int, CutLeft] = {}
        self.sums: dict[int, int] = {}
        self.bare: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self.exact = problem.even and not as_one
        self.never = (0,) * len(self.levels)
        self.off = list(map(self._received_off, range(len(problem.sizes))))
        sets = problem.together
        self.widest = max((one.bit_count() for one in sets), default=1) if sets is not None else max(1, len(moved))

    def least(self, pending: int, number: int) -> int:
        """Of a state, as the digits of one number."""
        made = self.problem.made
        if not made:
            return self._left(pending, number)
        as_one = made & ~pending
        other = self.others.get(as_one)
        if other is None:
            other = self.others[as_one] = Remaining(self.problem, as_one)
        return other._left(pending, number) + as_one.bit_count()

    def _left(self, pending: int, number: int) -> int:
        """The same but for making axes pending, which takes a local step each."""
        waiting = pending & ~self.problem.goal[0]
        cut = self.cuts.get(number) or self._cut(number)
        if not waiting:
            return cut.least
        collectives = self._rearranged(*cut[:4], waiting) + self._collectives(waiting.bit_count())
        time = self.sums.get(waiting) or self._of_a_sum(waiting)
        for level, slow in zip(self.levels, cut.times, strict=True):
            if not level.bits & waiting:
                time += slow
        return (time << DIGITS | collectives) << DIGITS | (self.cut_bits & ~cut.bits & ~pending).bit_count()

    def _cut(self, number: int) -> CutLeft:
        """What a cut says of the way to the goal, whatever is pending."""
        known, levels = self.parts.get, self.levels
        bits = astray = away = places = 0
        found = []
        for dim, entry in enumerate(self.problem.cuts.entries[number]):
            part = known((dim, entry)) or self._part(dim, entry)
            found.append(part.levels)
            bits |= part.cut
            if part.astray:
                astray += part.astray
                away += part.away
                places += 1
        times = []
        for at, level in enumerate(levels):
            held, lacks, least = 1, 0, 0
            for of_levels in found:
                _, has, bare, off = of_levels[at]
                held *= has
                if bare > lacks:
                    lacks = bare
                if off > least:
                    least = off
            if level.needed - held > lacks:
                lacks = level.needed - held
            times.append(level.more * (max(lacks // level.fast, least) // self.sharing))
        collectives = self._rearranged(bits, astray, away, places, 0)
        local = (self.cut_bits & ~bits).bit_count()
        cut = self.cuts[number] = CutLeft(
            bits, astray, away, places, times, (sum(times) << DIGITS | collectives) << DIGITS | local
        )
        return cut

    def _of_a_sum(self, waiting: int) -> int:
        """The time of what all ranks receive for a sum, shared alike; and a rank that needs an element receives it, or
        what it lacks of the sum. Over slow axes likewise, if the sum is over one of them."""
        time = 0
        for level in self.levels:
            if level.bits & waiting:
                received = self._received(level.bits, waiting, level.places, level.needed)
                time += level.more * (received // level.fast // self.sharing)
        self.sums[waiting] = time
        return time

    def _received(self, axes: int, waiting: int, places: int, needed: int) -> int:
        """Elements that one of the ``places`` on ``axes`` receives at least for a sum, of which it needs ``needed``."""
        sizes = self.problem.sizes
        addends = math.prod(size for axis, size in enumerate(sizes) if waiting & axes & (1 << axis))
        copies = math.prod(size for axis, size in enumerate(sizes) if axes & ~self.cut_bits & (1 << axis))
        return max(needed, self.total * (addends + copies - 2) // places)

    def _received_off(self, axis: int) -> int:
        """What the first rank receives at least in a collective that takes ``axis`` off.

        A gather brings as much as it holds, or more, and an exchange what is new of a block as large. Of that a rank
        has no more than the shortest of the pieces in which the axes cut it that are taken off: a part by their number.
        """
        size = self.problem.sizes[axis]
        return -(-self.total // self.ranks) * (size - 1) // size

    def _levels(self, moved: list[int]) -> list[Level]:
        """The weights; the axes of the least are all."""
        problem, before = self.problem, 0
        found: list[Level] = []
        for weight in sorted({problem.weights[axis] for axis in moved}) or [0]:
            axes = [axis for axis in moved if problem.weights[axis] >= weight]
            slow = frozenset(axes if found else range(len(problem.sizes)))
            places = math.prod(problem.sizes[axis] for axis in axes)
            lengths = tuple(problem.length(dim, _of(slow, new)) for dim, new in enumerate(problem.goal[1]))
            more, fast = (weight - before) * problem.itemsize, self.ranks // places
            found.append(Level(more, slow, bits_of(tuple(axes)), places, fast, lengths, math.prod(lengths)))
            before = weight
        return found

    def _part(self, dim: int, entry: tuple[int, ...]) -> Part:
        problem, goal = self.problem, self.problem.goal[1][dim]
        if not entry:
            levels = tuple([(1, level.lengths[dim], 0, 0) for level in self.levels])
            part = self.parts[dim, entry] = Part(0, 0, 0, 0, levels)
            return part
        axis = entry[-1]
        before = self.parts.get((dim, entry[:-1])) or self._part(dim, entry[:-1])
        if self.as_one >> axis & 1:
            self.parts[dim, entry] = before
            return before
        pieces = math.prod([problem.sizes[one] for one in entry if self.as_one >> one & 1])  # with gaps between
        length = problem.length(dim, entry) * pieces
        _, both, astray, away, levels = before
        bare = self.never
        if astray or both == len(goal) or goal[both] != axis:
            if not astray and both < len(goal) and pieces == 1:
                bare = self._bare(dim, both, axis)
            astray += 1
            away += not self.cut_bits >> axis & 1
        else:
            both += 1
        of_levels = []
        for level, (joined, _, lacks, off), more in zip(self.levels, levels, bare, strict=True):
            if axis not in level.slow:
                joined *= problem.sizes[axis]
            elif astray and level is not self.levels[0] and self.off[axis] > off:
                off = self.off[axis]
            of_levels.append((joined, min(level.lengths[dim], length * joined), lacks or more, off))
        part = self.parts[dim, entry] = Part(before.cut | 1 << axis, both, astray, away, tuple(of_levels))
        return part

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
            most = [0] * len(self.levels)
            for one, other in ((parting, new[both]), (new[both], parting)):
                # Of the first piece by `other` the rank has, or needs, at most all.
                step, far = (-(-length // self.problem.sizes[axis]) for axis in (one, other))
                place = -(-far // step)
                if place < self.problem.sizes[one]:
                    for at, level in enumerate(self.levels):
                        if level.slow.issuperset((*new[: both + 1], parting)):
                            most[at] = max(most[at], self._needed_at(one, place, level.slow))
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

    def _rearranged(self, bits: int, astray: int, away: int, places: int, waiting: int) -> int:
        """The fewest collectives that take axes off which stand where they do not stay, given that no byte more than
        the bound on bytes is received.

        Cuts and sums only add axes inside: what is not the beginning of the goal's has to be taken off. Only a gather
        ends a cut, and it does so on one dim. What it brings is wanted by all, so it takes no axis along that cuts
        something at the goal. Where a sum over three ranks or more is pending, ranks that only hold copies have to take
        their share of it, which is gathered afterwards.
        """
        least, ending = self._collectives(astray), away > 0
        if ending and places > 1:
            return max(least, 2)
        if not self.exact:
            return least
        if waiting:
            addends = math.prod(size for axis, size in enumerate(self.problem.sizes) if waiting >> axis & 1)
            sharing = self.moved & ~(bits | self.cut_bits | waiting)
            at_once = self._collectives(waiting.bit_count()) == 1  # then all of them are summed alike
            mixed = at_once and waiting & self.cut_bits and waiting & ~self.cut_bits
            ending = ending or bool(sharing and addends > 2) or bool(mixed)
        return max(least, ending + (astray > away))

    def _collectives(self, axes: int) -> int:
        """The fewest that so many axes take."""
        return -(-axes // self.widest)


def _of(axes: frozenset[int], entry: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in entry if axis in axes)
