"""How much is left to do: what every way from a layout to the goal of a move costs at least, for the search.

The bound is the cheapest way in a simpler world, where an axis can be taken off whatever cuts inside it: of each axis
it counts whether a reduction is pending over it, whether it cuts where it does not stay, or neither, and an axis that
has to cut and is equal, or cuts where it stays, is done. It cuts where it stays only once all do that are to be outside
it. Nothing there costs more than here: a rank holds the least that it can where those axes cut, and an exchange leaves
it the largest part that one can. These few situations are looked at from the goal backwards, the nearest first, and no
further than they are asked for.
Where an axis is to be pending at the end, any of its ranks may keep an element for all, at no cost: until it is
pending it counts as cutting. No step costs more for it: a rank that holds what the axis does not cut holds as much as
where it does, or more, and what a collective over it and others brings is no less than what one over the others does.
An axis that cuts at the start, and not where it stays, is known to be where it was until it is moved. So it is seen
that an exchange leaves a rank with nothing that takes an axis off a dim where another one comes, and that no axis is
inside one that is taken off but with it, nor outside one that comes to stay: each of the others is on another dim, or
is taken along. That holds of an axis that is to be pending, too: it becomes pending where it is if none is inside it,
and is gathered with those outside it, after which it counts as cutting somewhere. Where an axis went that has moved is
not known, nor which of two on one dim is inside.
Source: Culberson and Schaeffer 1998 (bounds from a simpler world); Dijkstra 1959.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from .cuts import bits_of, subsets
from .holdings import NOWHERE
from .moves import Fan
from .problem import ONE, CollectiveGroup, Problem

Situation = int
"""One after the other the bits of the axes over which a reduction is pending, of those that cut where they do not stay,
and of those among them that are known to be on the dim where they were at the start."""
Exactly = Callable[[], "int | None"]
Before = tuple[int, Situation, "Exactly | None"]
"""Of a step: what it costs at least, from where it leads, and, if it may cost more, what gives its cost: None where
there is no such step."""


class Remaining:
    """Least time, collectives and local steps from a state to the goal."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.width, self.every = len(problem.sizes), (1 << len(problem.sizes)) - 1
        self.moved = self.every & ~problem.fixed
        self.made = problem.made & self.moved
        self.stays = sum(problem.homes)
        self.summed = problem.start[0] & self.moved
        self.home = {axis: dim for dim, entry in enumerate(problem.goal[1]) for axis in entry}
        self.parts: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        self.known: dict[int, tuple[int, int, int]] = {}
        self.origin: dict[int, int] = {}  # the dim on which an axis is that does not stay there, both as bits
        self.tracked = self.staying = 0
        for dim, entry in enumerate(problem.start[1]):
            cut, astray, _ = self._part(dim, entry)
            self.staying |= cut & ~astray
            for axis in _bits(astray):
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
        outside, within = [0] * len(problem.sizes), [0] * len(problem.sizes)
        for entry in problem.start[1]:
            for at, axis in enumerate(entry):
                outside[axis] = bits_of(entry[:at]) & self.tracked
                within[axis] = bits_of(entry[at + 1 :]) & self.tracked
        self.outside, self.within = Union(outside), Union(within)  # of those tracked, on the same dim at the start
        self.starts = tuple(map(bits_of, problem.start[1]))
        self.least_held = problem.holdings.least
        self.held_of: dict[int, int] = {}
        self.parts_of: dict[int, tuple[int, ...]] = {}
        self.joint: dict[int, list[tuple[int, CollectiveGroup]]] = {}
        self.settled: dict[Situation, int] = {}
        self.found: dict[Situation, int] = {self.made: 0}
        self.order = 0
        self.queue: list[tuple[int, int, Situation, int, Exactly | None]] = [(0, 0, self.made, 0, None)]

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
        width = self.width
        situation = pending & self.moved | (astray | made | unmoved << width) << width
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
        """The cost of the cheapest way from there. What a step costs exactly is asked when it could be the next."""
        settled, queue, found = self.settled, self.queue, self.found
        while situation not in settled:
            spent, _, at, sofar, exactly = heapq.heappop(queue)
            if at in settled:
                continue
            if exactly is not None:
                cost = exactly()
                if cost is None or ((known := found.get(at)) is not None and known <= sofar + cost):
                    continue
                found[at] = sofar + cost
                if sofar + cost > spent:
                    self.order += 1
                    heapq.heappush(queue, (sofar + cost, self.order, at, 0, None))
                    continue
            settled[at] = spent
            for cost, before, exactly in self._before(at):
                now = spent + cost
                if now < found.get(before, now + 1):
                    if exactly is None:
                        found[before] = now
                    self.order += 1
                    heapq.heappush(queue, (now, self.order, before, spent, exactly))
        return settled[situation]

    def _before(self, at: Situation) -> list[Before]:
        """Every step that leads to a situation, from where, and what it costs at least."""
        width, every = self.width, self.every
        pending, astray, unmoved = at & every, at >> width & every, at >> 2 * width
        undone = pending | astray
        equal = self.moved & ~self.made & ~undone
        done = equal & self.stays
        steps: list[Before] = [
            (0 if axis & self.stays else 1, at ^ axis << width, None) for axis in _bits(astray & ~self.made & ~unmoved)
        ]
        for axis in _bits(self.made & pending):
            before = at ^ (axis | axis << width)
            steps.append((0, before, None))
            if axis & self.tracked and not (self.outside[axis] & ~unmoved or self.within[axis] & unmoved):
                steps.append((0, before | axis << 2 * width, None))
        self._gathered(steps, at, equal, done)
        self._exchanged(steps, at, done)
        if self.summed & ~pending:
            self._reduced(steps, at, equal, done)
        return steps

    def _gathered(self, steps: list[Before], at: Situation, equal: int, done: int) -> None:
        """The axes of a gather cut one dim, innermost: where one is known to be, all are, and no other is inside it.

        One that is to be pending is no less pending for it: only that it leaves the dim where it was counts.
        """
        width, every = self.width, self.every
        pending, astray, unmoved = at & every, at >> width & every, at >> 2 * width
        settled, undone, others = self.settled, pending | astray, astray & ~unmoved & ~self.made
        anywhere, waits = self.problem.holdings.anywhere, self.waits
        along = astray & self.made & self.tracked & ~unmoved
        for gathered, group in self._groups(equal | along):
            axes, leave = gathered & equal, gathered & along
            cut, free, more = astray | axes, done & ~axes & ~self.blocked[undone | axes], group.ranks - 1
            for some in self._parts(axes & self.tracked):
                taken = some | leave
                before = at | (axes | taken << width) << width
                dims = self.dims[taken]
                if before in settled or dims & (dims - 1):
                    continue
                if self.outside[taken] & ~taken & ~unmoved or self.within[taken] & unmoved & ~gathered:
                    continue
                still = unmoved | taken
                home = free & ~waits[still]
                exactly = partial(self._gather, group, home, still, cut, others, dims, axes)
                steps.append((group.price(more * anywhere[cut | home]), before, exactly))

    def _exchanged(self, steps: list[Before], at: Situation, done: int) -> None:
        """Axes come to where they stay, or leave the dim where they were."""
        width, every_axis = self.width, self.every
        pending, astray, unmoved = at & every_axis, at >> width & every_axis, at >> 2 * width
        settled, undone, tracked = self.settled, pending | astray, self.tracked
        anywhere = self.problem.holdings.anywhere
        along = astray & tracked & ~unmoved
        now = (self.waits[unmoved] | self.blocked[undone]) & done
        for every, group in self._groups(done & ~now | along):
            axes, elsewhere = every & done, every & along
            free, into = done & ~self.blocked[undone | axes], self.into[axes]
            for some in self._parts(axes & tracked):
                taken = elsewhere | some
                before = at | (axes | taken << width) << width
                if before in settled:
                    continue
                still, dims = unmoved | taken, self.dims[taken]
                if self.outside[taken] & ~still or self.within[taken] & unmoved & ~taken:
                    continue
                home = free & ~self.waits[still] | axes
                held, bare = anywhere[astray | home], bool(dims & into)
                exactly = partial(self._exchange, every, astray, home, unmoved, into | dims, bare=bare)
                steps.append((group.price(held if bare else held - held // group.ranks), before, exactly))

    def _gather(self, group: CollectiveGroup, *where: int) -> int | None:
        """What it costs to bring a rank as much as each of the others holds."""
        held = self._held(*where)
        return None if held == NOWHERE else group.price((group.ranks - 1) * held)

    def _exchange(self, every: int, astray: int, home: int, unmoved: int, dims: int, *, bare: bool) -> int | None:
        """What an exchange costs that takes these axes and perhaps others.

        Another one that it does not take is on no dim to which one comes that stays there, and inside none that it
        takes.
        """
        others = astray & ~every & ~unmoved & ~self.made
        least: int | None = None
        for more in self._parts(others):
            group = self.problem.least_group(every | more)
            held = NOWHERE if group is None else self._held(home, unmoved, astray, others & ~more, dims)
            if group is not None and held != NOWHERE:
                price = group.price(held if bare else held - held // group.ranks)
                least = price if least is None else min(least, price)
                if not others or (not more and held == self._held(home, unmoved, astray)):
                    break
        return least

    def _reduced(self, steps: list[Before], at: Situation, equal: int, done: int) -> None:
        """What is no longer pending is equal, or cuts one dim, inside all that do."""
        width, every = self.width, self.every
        pending, astray, unmoved = at & every, at >> width & every, at >> 2 * width
        settled, undone, others = self.settled, pending | astray, astray & ~unmoved & ~self.made
        free, anywhere = done & ~self.waits[unmoved], self.problem.holdings.anywhere
        for axes, group in self._sums(self.summed & equal):
            before = at | axes
            if before not in settled:
                held = self._held(free & ~axes & ~self.blocked[undone | axes], unmoved, astray)
                steps.append((2 * group.price((group.ranks - 1) * -(-held // group.ranks)) - ONE, before, None))
        now = (self.waits[unmoved] | self.blocked[undone]) & done
        for axes, group in self._sums(self.summed & (done & ~now | astray)):
            before, dims = (at | axes) & ~(axes << width), self.into[axes & done]
            if before not in settled and not dims & (dims - 1):
                home = free & ~self.blocked[undone | axes] | axes & done
                exactly = partial(self._gather, group, home, unmoved, astray, others & ~axes, dims, axes)
                least = group.price((group.ranks - 1) * anywhere[astray | home])
                steps.append((least, before, exactly))

    def _held(self, home: int, still: int, cut: int, barred: int = 0, dims: int = 0, inside: int = 0) -> int:
        """The least that a rank can hold where axes ``cut``, those ``home`` where they stay; NOWHERE if they cannot.

        Axes ``barred`` are on none of ``dims``, and those ``inside``, if a dim is known, are on that one.
        """
        width = self.width
        key = home | (still | cut << width) << width
        if dims:
            key |= (barred | (inside | dims << width) << width) << 3 * width
        held = self.held_of.get(key)
        if held is None:
            held = self.held_of[key] = self._least_held(home, still, cut, barred, dims, inside)
        return held

    def _least_held(self, home: int, still: int, cut: int, barred: int, dims: int, inside: int) -> int:
        pairs = zip(self.problem.homes, self.starts, strict=True)
        on_dims = tuple([home & goal | still & start for goal, start in pairs])
        free = cut & ~home & ~still
        if not dims:
            return self.least_held(on_dims, free)
        if inside & free:
            on_dims = tuple([axes | inside & free if dims >> dim & 1 else axes for dim, axes in enumerate(on_dims)])
            free &= ~inside
        barred &= free
        return self.least_held(on_dims, free, barred, dims if barred else 0)

    def _parts(self, axes: int) -> tuple[int, ...]:
        """Every set of some of ``axes``, none first."""
        found = self.parts_of.get(axes)
        if found is None:
            found = self.parts_of[axes] = (0, *subsets(axes))
        return found

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
