"""How much is left to do: what every way from a layout to the goal of a move costs at least, for the search.

The bound is the cheapest way in a simpler world, where an axis can be taken off whatever cuts inside it: of each axis
it counts whether a reduction is pending over it, whether it cuts where it does not stay, or neither, and an axis that
has to cut and is equal, or cuts where it stays, is done. It cuts where it stays only once all do that are to be outside
it. Nothing there costs more than here: a rank holds no more than it can where as many axes cut, an exchange leaves it
the largest part that one can, and takes no axis along that only stands in the way. These few situations are looked at
from the goal backwards, the nearest first, and no further than they are asked for.
Where an axis is to be pending at the end, any of its ranks may keep an element for all, at no cost: until it is
pending it counts as cutting.
An exchange that takes an axis off a dim where another one comes leaves a rank with nothing. So that it is counted as
dear as it is, an axis that cuts at the start, and not where it stays, is known to be where it was until it is moved.
Source: Culberson and Schaeffer 1998 (bounds from a simpler world); Dijkstra 1959.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from .cuts import bits_of, subsets
from .moves import Fan
from .problem import ONE, CollectiveGroup, Problem

Situation = tuple[int, int, int]
"""The bits of the axes over which a reduction is pending, of those that cut where they do not stay, and of those among
them that are known to be on the dim where they were at the start."""


class Remaining:
    """Least time, collectives and local steps from a state to the goal."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.moved = ((1 << len(problem.sizes)) - 1) & ~problem.fixed
        self.made = problem.made & self.moved
        self.stays = sum(problem.homes)
        self.summed = problem.start[0] & self.moved
        self.home = {axis: dim for dim, entry in enumerate(problem.goal[1]) for axis in entry}
        self.tracked = 0
        self.parts: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        self.known: dict[int, tuple[int, int, int]] = {}
        self.origin: dict[int, int] = {}  # the dim on which an axis is that does not stay there, both as bits
        self.tracked = self.staying = 0
        for dim, entry in enumerate(problem.start[1]):
            cut, astray, _ = self._part(dim, entry)
            self.staying |= cut & ~astray
            for axis in _bits(astray & ~self.made):
                self.origin[axis] = 1 << dim
        self.parts.clear()
        self.tracked = sum(self.origin)
        inner = [0] * len(problem.sizes)
        for entry in problem.goal[1]:
            for at, axis in enumerate(entry):
                inner[axis] = bits_of(entry[at + 1 :])
        dims = [self.origin.get(1 << axis, 0) for axis in range(len(problem.sizes))]
        homes = Union(problem.homes)
        self.blocked = Union(inner)  # by the axes that are not done: those that are to cut inside them
        # By those that have not moved: those that cannot cut where they stay, since one that does not is on the dim.
        self.waits = Union([homes[dim] & ~self.staying for dim in dims])
        self.dims = Union(dims)  # where axes were at the start, and where they stay, as bits
        self.into = Union([1 << self.home[axis] if axis in self.home else 0 for axis in range(len(problem.sizes))])
        self.joint: dict[int, list[tuple[int, CollectiveGroup]]] = {}
        goal = self.made, 0, 0
        self.settled: dict[Situation, int] = {}
        self.found: dict[Situation, int] = {goal: 0}
        self.queue: list[tuple[int, Situation]] = [(0, goal)]

    def least(self, pending: int, number: int) -> int:
        """Of a state, as the digits of one number."""
        return self._least(pending, *(self.known.get(number) or self._cut(number)))

    def after(self, number: int, pending: int, fan: Fan) -> int:
        """Of the best state to which one of several steps from a cut can lead, with ``pending`` after it."""
        cut, astray, unmoved = self.known.get(number) or self._cut(number)
        axes = fan.bits | fan.summed
        unmoved &= ~axes
        astray = astray & ~axes | axes & ~(fan.aim & self.stays)
        astray |= axes & (self.blocked[astray | pending & self.moved] | self.waits[unmoved])
        return self._least(pending, cut | axes, astray, unmoved)

    def _least(self, pending: int, cut: int, astray: int, unmoved: int) -> int:
        made = self.made & ~pending
        situation = pending & self.moved, astray | made, unmoved
        cost = self.settled.get(situation)
        if cost is None:
            cost = self._from(situation)
        return cost + (self.stays & ~cut & ~pending | made).bit_count()

    def _cut(self, number: int) -> tuple[int, int, int]:
        """The axes that cut any dim, those of them that do not stay, and those of these that are where they were."""
        cut = astray = unmoved = 0
        for dim, entry in enumerate(self.problem.cuts.entries[number]):
            if entry:
                part = self.parts.get((dim, entry)) or self._part(dim, entry)
                cut |= part[0]
                astray |= part[1]
                unmoved |= part[2]
        found = self.known[number] = cut, astray, unmoved
        return found

    def _part(self, dim: int, entry: tuple[int, ...]) -> tuple[int, int, int]:
        both = 0
        for axis, wanted in zip(entry, self.problem.goal[1][dim], strict=False):
            if axis != wanted:
                break
            both += 1
        astray = bits_of(entry[both:])
        still = 0
        for axis, before in zip(entry, self.problem.start[1][dim], strict=False):
            if axis != before:
                break
            still += 1
        unmoved = bits_of(entry[both:still]) & self.tracked if still > both else 0
        part = self.parts[dim, entry] = bits_of(entry), astray, unmoved
        return part

    def _from(self, situation: Situation) -> int:
        """The cost of the cheapest way from there."""
        settled, queue, found = self.settled, self.queue, self.found
        while situation not in settled:
            spent, at = heapq.heappop(queue)
            if at in settled:
                continue
            settled[at] = spent
            for cost, before in self._before(*at):
                now = spent + cost
                if before not in settled and now < found.get(before, now + 1):
                    found[before] = now
                    heapq.heappush(queue, (now, before))
        return settled[situation]

    def _before(self, pending: int, astray: int, unmoved: int) -> Iterator[tuple[int, Situation]]:
        """Every step that leads to a situation, from where, and what it costs at least."""
        share, waits, blocked, tracked = self.problem.share, self.waits, self.blocked, self.tracked
        undone = pending | astray
        equal = self.moved & ~self.made & ~undone
        done = equal & self.stays
        now = (waits[unmoved] | blocked[undone]) & done
        for axis in _bits(astray & ~self.made & ~unmoved):
            yield (0 if axis & self.stays else 1), (pending, astray & ~axis, unmoved)
        for axis in _bits(self.made & pending):
            yield 0, (pending & ~axis, astray | axis, unmoved)
        for axes, group in self._groups(equal):
            cut, others = astray | axes, group.ranks - 1
            free = done & ~axes & ~blocked[undone | axes]
            for still in (unmoved, *(unmoved | some for some in subsets(axes & tracked))):
                home = free & ~waits[still]
                yield group.price(others * share(cut | home, home)), (pending, cut, still)
        along = astray & tracked & ~unmoved
        for every, group in self._groups(done & ~now | along):
            axes, elsewhere = every & done, every & along
            cut, free, into = astray | axes, done & ~blocked[undone | axes], self.into[axes]
            for still in (unmoved | elsewhere, *(unmoved | elsewhere | some for some in subsets(axes & tracked))):
                home = free & ~waits[still] | axes
                held = share(astray | home, home)
                bare = self.dims[still & ~unmoved] & into
                yield group.price(held if bare else held - held // group.ranks), (pending, cut, still)
        free = done & ~waits[unmoved]
        if self.summed & equal:
            for axes, group in self._sums(self.summed & equal):
                left = free & ~axes & ~blocked[undone | axes]
                pieces = -(-share(astray | left, left) // group.ranks)
                yield 2 * group.price((group.ranks - 1) * pieces) - ONE, (pending | axes, astray, unmoved)
        if self.summed & ~pending:
            for axes, group in self._sums(self.summed & (done & ~now | astray)):
                home = free & ~blocked[undone | axes] | axes & done
                held = share(astray | home, home)
                yield group.price((group.ranks - 1) * held), (pending | axes, astray & ~axes, unmoved)

    def _groups(self, axes: int) -> list[tuple[int, CollectiveGroup]]:
        """The collectives over some of ``axes``, or these and more."""
        found = self.joint.get(axes)
        if found is None:
            groups = [(chosen, self.problem.least_group(chosen)) for chosen in subsets(axes)]
            found = self.joint[axes] = [(chosen, group) for chosen, group in groups if group is not None]
        return found

    def _sums(self, axes: int) -> Iterator[tuple[int, CollectiveGroup]]:
        return ((chosen, group) for chosen, group in self._groups(axes) if self.problem.one_kind(chosen))


class Union(dict[int, int]):
    """By a set of axes, as bits, what any of them has: ``of`` is what each has. Filled as it is asked."""

    def __init__(self, of: Sequence[int]) -> None:
        super().__init__({0: 0})
        self.of = of

    def __missing__(self, axes: int) -> int:
        found = self[axes] = self[axes & (axes - 1)] | self.of[(axes & -axes).bit_length() - 1]
        return found


def _bits(axes: int) -> Iterator[int]:
    while axes:
        axis = axes & -axes
        yield axis
        axes ^= axis
