"""A simpler world than that of layouts, in which an axis can be taken off whatever cuts inside it, for bounds.

Of each axis it counts whether a reduction is pending over it, whether it cuts where it does not stay, or neither, and
an axis that has to cut and is equal, or cuts where it stays, is done. It cuts where it stays only once all do that are
to be outside it. Nothing there costs more than here: a rank holds the least that it can where those axes cut, and an
exchange leaves it the largest part that one can.
Where an axis is to be pending at the end, any of its ranks may keep an element for all, at no cost: until it is
pending it counts as cutting. No step costs more for it: a rank that holds what the axis does not cut holds as much as
where it does, or more, and what a collective over it and others brings is no less than what one over the others does.
An axis that cuts at the start, and not where it stays, is known to be where it was until it is moved. So it is seen
that an exchange leaves a rank with nothing that takes an axis off a dim where another one comes, and that no axis is
inside one that is taken off but with it, nor outside one that comes to stay: each of the others is on another dim, or
is taken along. That holds of an axis that is to be pending, too: it becomes pending where it is if none is inside it,
and is gathered with those outside it, after which it counts as cutting somewhere. Where an axis went that has moved is
not known, nor which of two on one dim is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from .cuts import bits_of, parts_of, subsets
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


class Situations:
    """The situations of a move, and the steps between them.

    ``end``      the one at the goal.
    ``summed``   the axes over which a reduction is pending that is to be done.
    ``leaving``  those that a collective has to take from where they are at the start.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        width = self.width = len(problem.sizes)
        self.every = (1 << width) - 1
        self.moved = self.every & ~problem.fixed
        self.end = self.made = problem.made & self.moved
        self.stays = sum(problem.homes)
        self.summed = problem.start[0] & self.moved
        self.starts = tuple(map(bits_of, problem.start[1]))
        self._known: dict[int, tuple[int, int, int]] = {}
        self._parts: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        self._joint: dict[int, list[tuple[int, CollectiveGroup]]] = {}
        self._held_of: dict[int, int] = {}
        self.tracked = staying = 0
        dims, into, waits, blocked, outside, within = ([0] * width for _ in range(6))
        for dim, entry in enumerate(problem.start[1]):
            both = _common(entry, problem.goal[1][dim])
            staying |= bits_of(entry[:both])
            self.tracked |= bits_of(entry[both:])
            for at, axis in enumerate(entry[both:], both):
                dims[axis] = 1 << dim
                outside[axis], within[axis] = bits_of(entry[both:at]), bits_of(entry[at + 1 :])
        for dim, entry in enumerate(problem.goal[1]):
            for at, axis in enumerate(entry):
                into[axis], blocked[axis] = 1 << dim, bits_of(entry[at + 1 :])
        for axis, dim in enumerate(dims):
            waits[axis] = problem.homes[dim.bit_length() - 1] & ~staying if dim else 0
        self.leaving = self.tracked & ~self.made
        self._dims, self._into = Union(dims), Union(into)  # where axes were at the start, and where they stay, as bits
        self._outside, self._within = Union(outside), Union(within)  # of those tracked, on the same dim at the start
        self._blocked = Union(blocked)  # by the axes that are not done: those that are to cut inside them
        # By those that have not moved: those that cannot cut where they stay, since one that does not is on the dim.
        self._waits = Union(waits)

    def of(self, pending: int, number: int) -> tuple[Situation, int]:
        """That of a state, and the local steps left to do there that no situation counts."""
        return self._packed(pending, *(self._known.get(number) or self._cut(number)))

    def after(self, number: int, pending: int, fan: Fan) -> tuple[Situation, int]:
        """The best one to which one of several steps from a cut can lead, with ``pending`` after it."""
        cut, astray, unmoved = self._known.get(number) or self._cut(number)
        axes = fan.bits | fan.summed
        unmoved &= ~axes
        astray = astray & ~axes | axes & ~(fan.aim & self.stays)
        astray |= axes & (self._blocked[astray | pending & self.moved] | self._waits[unmoved])
        return self._packed(pending, cut | axes, astray, unmoved)

    def _packed(self, pending: int, cut: int, astray: int, unmoved: int) -> tuple[Situation, int]:
        made = self.made & ~pending
        situation = pending & self.moved | (astray | made | unmoved << self.width) << self.width
        return situation, (self.stays & ~cut & ~pending | made).bit_count()

    def _cut(self, number: int) -> tuple[int, int, int]:
        """The axes that cut any dim, those of them that do not stay, and those of these that are where they were."""
        cut = astray = unmoved = 0
        for dim, entry in enumerate(self.problem.cuts.entries[number]):
            if entry:
                part = self._parts.get((dim, entry)) or self._part(dim, entry)
                cut |= part[0]
                astray |= part[1]
                unmoved |= part[2]
        found = self._known[number] = cut, astray, unmoved
        return found

    def _part(self, dim: int, entry: tuple[int, ...]) -> tuple[int, int, int]:
        both, still = (_common(entry, other[1][dim]) for other in (self.problem.goal, self.problem.start))
        part = self._parts[dim, entry] = (
            bits_of(entry),
            bits_of(entry[both:]),
            bits_of(entry[both:still]) & self.tracked,
        )
        return part

    def before(self, at: Situation) -> Iterator[Before]:
        """Every step that leads to a situation, from where, and what it costs at least."""
        width, every = self.width, self.every
        pending, astray, unmoved = at & every, at >> width & every, at >> 2 * width
        undone = pending | astray
        equal = self.moved & ~self.made & ~undone
        done = equal & self.stays
        for axis in _bits(astray & ~self.made & ~unmoved):
            yield 0 if axis & self.stays else 1, at ^ axis << width, None
        for axis in _bits(self.made & pending):
            before = at ^ (axis | axis << width)
            yield 0, before, None
            if axis & self.tracked and not (self._outside[axis] & ~unmoved or self._within[axis] & unmoved):
                yield 0, before | axis << 2 * width, None
        yield from self._gathered(at, equal, done)
        yield from self._exchanged(at, done)
        if self.summed & ~pending:
            yield from self._reduced(at, equal, done)

    def _gathered(self, at: Situation, equal: int, done: int) -> Iterator[Before]:
        """The axes of a gather cut one dim, innermost: where one is known to be, all are, and no other is inside it.

        One that is to be pending is no less pending for it: only that it leaves the dim where it was counts.
        """
        width, every = self.width, self.every
        pending, astray, unmoved = at & every, at >> width & every, at >> 2 * width
        undone, others = pending | astray, astray & ~unmoved & ~self.made
        anywhere = self.problem.holdings.anywhere
        along = astray & self.made & self.tracked & ~unmoved
        for gathered, group in self._groups(equal | along):
            axes, leave = gathered & equal, gathered & along
            cut, free = astray | axes, done & ~axes & ~self._blocked[undone | axes]
            least = group.price((group.ranks - 1) * anywhere[cut | free])
            for some in parts_of(axes & self.tracked):
                taken = some | leave
                dims = self._dims[taken]
                if dims & (dims - 1) or self._outside[taken] & ~taken & ~unmoved:
                    continue
                if self._within[taken] & unmoved & ~gathered:
                    continue
                still = unmoved | taken
                exactly = partial(self._gather, group, free & ~self._waits[still], still, cut, others, dims, axes)
                yield least, at | (axes | taken << width) << width, exactly

    def _exchanged(self, at: Situation, done: int) -> Iterator[Before]:
        """Axes come to where they stay, or leave the dim where they were."""
        width, every_axis = self.width, self.every
        pending, astray, unmoved = at & every_axis, at >> width & every_axis, at >> 2 * width
        undone, tracked = pending | astray, self.tracked
        anywhere = self.problem.holdings.anywhere
        along = astray & tracked & ~unmoved
        now = (self._waits[unmoved] | self._blocked[undone]) & done
        for every, group in self._groups(done & ~now | along):
            axes, elsewhere = every & done, every & along
            free, into = done & ~self._blocked[undone | axes], self._into[axes]
            held = anywhere[astray | free | axes]
            for some in parts_of(axes & tracked):
                taken = elsewhere | some
                still, dims = unmoved | taken, self._dims[taken]
                if self._outside[taken] & ~still or self._within[taken] & unmoved & ~taken:
                    continue
                home, bare = free & ~self._waits[still] | axes, bool(dims & into)
                exactly = partial(self._exchange, every, astray, home, unmoved, into | dims, bare=bare)
                least = group.price(held if bare else held - held // group.ranks)
                yield least, at | (axes | taken << width) << width, exactly

    def _reduced(self, at: Situation, equal: int, done: int) -> Iterator[Before]:
        """What is no longer pending is equal, or cuts one dim, inside all that do."""
        width, every = self.width, self.every
        pending, astray, unmoved = at & every, at >> width & every, at >> 2 * width
        undone, others = pending | astray, astray & ~unmoved & ~self.made
        free, anywhere = done & ~self._waits[unmoved], self.problem.holdings.anywhere
        for axes, group in self._sums(self.summed & equal):
            held = self._held(free & ~axes & ~self._blocked[undone | axes], unmoved, astray)
            yield 2 * group.price((group.ranks - 1) * -(-held // group.ranks)) - ONE, at | axes, None
        now = (self._waits[unmoved] | self._blocked[undone]) & done
        for axes, group in self._sums(self.summed & (done & ~now | astray)):
            dims = self._into[axes & done]
            if not dims & (dims - 1):
                home = free & ~self._blocked[undone | axes] | axes & done
                exactly = partial(self._gather, group, home, unmoved, astray, others & ~axes, dims, axes)
                least = group.price((group.ranks - 1) * anywhere[astray | home])
                yield least, (at | axes) & ~(axes << width), exactly

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
        for more in parts_of(others):
            group = self.problem.least_group(every | more)
            held = NOWHERE if group is None else self._held(home, unmoved, astray, others & ~more, dims)
            if group is not None and held != NOWHERE:
                price = group.price(held if bare else held - held // group.ranks)
                least = price if least is None else min(least, price)
                if not others or (not more and held == self._held(home, unmoved, astray)):
                    break
        return least

    def _held(self, home: int, still: int, cut: int, barred: int = 0, dims: int = 0, inside: int = 0) -> int:
        """The least that a rank can hold where axes ``cut``, those ``home`` where they stay; NOWHERE if they cannot.

        Axes ``barred`` are on none of ``dims``, and those ``inside``, if a dim is known, are on that one.
        """
        width = self.width
        key = home | (still | cut << width) << width
        if dims:
            key |= (barred | (inside | dims << width) << width) << 3 * width
        held = self._held_of.get(key)
        if held is None:
            held = self._held_of[key] = self._least_held(home, still, cut, barred, dims, inside)
        return held

    def _least_held(self, home: int, still: int, cut: int, barred: int, dims: int, inside: int) -> int:
        pairs = zip(self.problem.homes, self.starts, strict=True)
        on_dims = tuple([home & goal | still & start for goal, start in pairs])
        free, least = cut & ~home & ~still, self.problem.holdings.least
        if not dims:
            return least(on_dims, free)
        if inside & free:
            on_dims = tuple([axes | inside & free if dims >> dim & 1 else axes for dim, axes in enumerate(on_dims)])
            free &= ~inside
        barred &= free
        return least(on_dims, free, barred, dims if barred else 0)

    def _groups(self, axes: int) -> list[tuple[int, CollectiveGroup]]:
        """The collectives over some of ``axes``, or these and more."""
        found = self._joint.get(axes)
        if found is None:
            groups = [(chosen, self.problem.least_group(chosen)) for chosen in subsets(axes)]
            found = self._joint[axes] = [(chosen, group) for chosen, group in groups if group is not None]
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


def _common(entry: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many axes stand first in both."""
    count = 0
    for axis, wanted in zip(entry, other, strict=False):
        if axis != wanted:
            break
        count += 1
    return count


def _bits(axes: int) -> Iterator[int]:
    while axes:
        axis = axes & -axes
        yield axis
        axes ^= axis
