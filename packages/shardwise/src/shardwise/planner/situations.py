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

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from .cuts import bits_of, parts_of, subsets
from .holdings import NOWHERE
from .problem import ONE, CollectiveGroup, Problem

Situation = int
"""One after the other the bits of the axes over which a reduction is pending, of those that cut where they do not stay,
and of those among them that are known to be on the dim where they were at the start."""
Exactly = Callable[[], "int | None"]
Before = tuple[int, Situation, "Exactly | None"]
"""Of a step: what it costs at least, from where it leads, and, if it may cost more, what gives its cost: None where
there is no such step."""
Ahead = tuple[Situation, int]
"""A situation, and the local steps left to do there that none counts."""


class AxisRoles:
    """What cuts have in common that differ in the order and the dims of axes that do not stay.

    ``cut``      the axes that cut any dim, ``astray`` those of them that do not stay, and ``unmoved`` those of these
                 that are where they were.
    ``ahead``    what was found of steps from there.
    """

    __slots__ = ("ahead", "astray", "cut", "unmoved")

    def __init__(self, cut: int, astray: int, unmoved: int) -> None:
        self.cut, self.astray, self.unmoved = cut, astray, unmoved
        self.ahead: dict[int, Ahead] = {}


class Situations:
    """The situations of a move, and the steps between them.

    ``end``      the one at the goal.
    ``summed``   the axes over which a reduction is pending that is to be done.
    ``leaving``  those that a collective has to take from where they are at the start.
    ``moved``    all that any step touches.
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
        self._roles: dict[int, AxisRoles] = {}
        self._alike: dict[tuple[int, int, int], AxisRoles] = {}
        self._parts: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        self._joint: dict[int, list[tuple[int, CollectiveGroup]]] = {}
        self._held_of: dict[int, int] = {}
        self._takings_of: dict[int, list[tuple[int, int, int, int]]] = {}
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

    def of(self, number: int, pending: int, moved: int = 0, aim: int = 0) -> Ahead:
        """That of a state, or the best one to which one of several steps from a cut can lead that moves these axes.

        ``pending`` is what is after it, and ``aim`` those that can cut where they stay.
        """
        roles = self._roles.get(number) or self._roles_in(number)
        key = (pending << self.width | moved) << self.width | aim
        found = roles.ahead.get(key)
        if found is None:
            cut, astray, unmoved = roles.cut, roles.astray, roles.unmoved & ~moved
            if moved:
                astray = astray & ~moved | moved & ~(aim & self.stays)
                astray |= moved & (self._blocked[astray | pending & self.moved] | self._waits[unmoved])
            found = roles.ahead[key] = self._packed(pending, cut | moved, astray, unmoved)
        return found

    def _packed(self, pending: int, cut: int, astray: int, unmoved: int) -> Ahead:
        made = self.made & ~pending
        situation = pending & self.moved | (astray | made | unmoved << self.width) << self.width
        return situation, (self.stays & ~cut & ~pending | made).bit_count()

    def _roles_in(self, number: int) -> AxisRoles:
        cut = astray = unmoved = 0
        for dim, entry in enumerate(self.problem.cuts.entries[number]):
            if entry:
                part = self._parts.get((dim, entry)) or self._part(dim, entry)
                cut |= part[0]
                astray |= part[1]
                unmoved |= part[2]
        key = cut, astray, unmoved
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = AxisRoles(*key)
        self._roles[number] = found
        return found

    def _part(self, dim: int, entry: tuple[int, ...]) -> tuple[int, int, int]:
        both, still = (_common(entry, other[1][dim]) for other in (self.problem.goal, self.problem.start))
        unmoved = bits_of(entry[both:still]) & self.tracked
        part = self._parts[dim, entry] = bits_of(entry), bits_of(entry[both:]), unmoved
        return part

    def before(self, at: Situation) -> Iterator[Before]:
        """Every step that leads to a situation, from where, and what it costs at least."""
        pending, astray, _ = self._unpacked(at)
        equal = self.moved & ~self.made & ~pending & ~astray
        reduced = self._reduced(at, equal) if self.summed & ~pending else ()
        return itertools.chain(
            self._local(at), self._gathered(at, equal), self._exchanged(at, equal & self.stays), reduced
        )

    def _local(self, at: Situation) -> Iterator[Before]:
        """Cut what is equal, and make what is to be pending at the end an addend."""
        pending, astray, unmoved = self._unpacked(at)
        for axis in _bits(astray & ~self.made & ~unmoved):
            yield 0 if axis & self.stays else 1, at ^ axis << self.width, None
        for axis in _bits(self.made & pending):
            before = at ^ (axis | axis << self.width)
            yield 0, before, None
            if axis & self.tracked and not (self._outside[axis] & ~unmoved or self._within[axis] & unmoved):
                yield 0, before | axis << 2 * self.width, None

    def _unpacked(self, at: Situation) -> tuple[int, int, int]:
        return at & self.every, at >> self.width & self.every, at >> 2 * self.width

    def _gathered(self, at: Situation, equal: int) -> Iterator[Before]:
        """The axes of a gather cut one dim, innermost: where one is known to be, all are, and no other is inside it.

        One that is to be pending is no less pending for it: only that it leaves the dim where it was counts.
        """
        width, anywhere = self.width, self.problem.holdings.anywhere
        pending, astray, unmoved = self._unpacked(at)
        along = astray & self.made & self.tracked & ~unmoved
        for gathered, group in self._groups(equal | along):
            axes = gathered & equal
            free = equal & self.stays & ~axes & ~self._blocked[pending | astray | axes]
            least = group.price((group.ranks - 1) * anywhere[astray | axes | free])
            for taken, dims, outside, within in self._takings(axes, gathered & along):
                if not (dims & (dims - 1) or outside & ~unmoved or within & unmoved):
                    exactly = partial(self._gather, group, at, axes, taken)
                    yield least, at | (axes | taken << width) << width, exactly

    def _exchanged(self, at: Situation, done: int) -> Iterator[Before]:
        """Axes come to where they stay, or leave the dim where they were."""
        width, anywhere = self.width, self.problem.holdings.anywhere
        pending, astray, unmoved = self._unpacked(at)
        undone = pending | astray
        along = astray & self.tracked & ~unmoved
        now = (self._waits[unmoved] | self._blocked[undone]) & done
        for every, group in self._groups(done & ~now | along):
            axes = every & done
            into, held = self._into[axes], anywhere[astray | done & ~self._blocked[undone | axes] | axes]
            for taken, dims, outside, within in self._takings(axes, every & along):
                if not (outside & ~unmoved or within & unmoved):
                    least = _received(group, held, bare=bool(dims & into))
                    exactly = partial(self._exchange, every, at, axes, taken)
                    yield least, at | (axes | taken << width) << width, exactly

    def _takings(self, axes: int, leaving: int) -> list[tuple[int, int, int, int]]:
        """Which of these may be taken off a dim where they have been since the start, ``leaving`` in any case.

        The axes taken, their dims, those outside them that must still be there, and those inside that must not.
        """
        key = axes | leaving << self.width
        found = self._takings_of.get(key)
        if found is None:
            found = self._takings_of[key] = [
                (taken, self._dims[taken], self._outside[taken] & ~taken, self._within[taken])
                for taken in [some | leaving for some in parts_of(axes & self.tracked)]
            ]
        return found

    def _reduced(self, at: Situation, equal: int) -> Iterator[Before]:
        """What is no longer pending is equal, or cuts one dim, inside all that do."""
        width, anywhere = self.width, self.problem.holdings.anywhere
        pending, astray, unmoved = self._unpacked(at)
        undone, others = pending | astray, astray & ~unmoved & ~self.made
        done = equal & self.stays
        free = done & ~self._waits[unmoved]
        for axes, group in self._sums(self.summed & equal):
            held = self._held(free & ~axes & ~self._blocked[undone | axes], unmoved, astray)
            yield 2 * group.price((group.ranks - 1) * -(-held // group.ranks)) - ONE, at | axes, None
        now = (self._waits[unmoved] | self._blocked[undone]) & done
        for axes, group in self._sums(self.summed & (done & ~now | astray)):
            dims = self._into[axes & done]
            if not dims & (dims - 1):
                home = free & ~self._blocked[undone | axes] | axes & done
                exactly = partial(self._brought, group, home, unmoved, astray, others & ~axes, dims, axes)
                least = group.price((group.ranks - 1) * anywhere[astray | home])
                yield least, (at | axes) & ~(axes << width), exactly

    def _gather(self, group: CollectiveGroup, at: Situation, axes: int, taken: int) -> int | None:
        """What a gather of ``axes`` costs, those ``taken`` off the dim where they were at the start."""
        pending, astray, unmoved = self._unpacked(at)
        undone, still = pending | astray | axes, unmoved | taken
        home = self.moved & ~self.made & self.stays & ~undone & ~self._blocked[undone] & ~self._waits[still]
        others = astray & ~unmoved & ~self.made
        return self._brought(group, home, still, astray | axes, others, self._dims[taken], axes)

    def _brought(self, group: CollectiveGroup, *where: int) -> int | None:
        """What it costs to bring a rank as much as each of the others holds."""
        held = self._held(*where)
        return None if held == NOWHERE else group.price((group.ranks - 1) * held)

    def _exchange(self, every: int, at: Situation, axes: int, taken: int) -> int | None:
        """What an exchange costs that takes ``every`` one of these and perhaps others, and brings ``axes`` home.

        Another one that it does not take is on no dim to which one comes that stays there, and inside none that it
        takes.
        """
        pending, astray, unmoved = self._unpacked(at)
        undone = pending | astray
        into, off = self._into[axes], self._dims[taken]
        bare = bool(into & off)
        free = self.moved & ~self.made & self.stays & ~undone & ~self._blocked[undone | axes]
        where = free & ~self._waits[unmoved | taken] | axes, unmoved, astray
        others = astray & ~every & ~unmoved & ~self.made
        fewest, least = self._held(*where), None
        for more in parts_of(others):
            group = self.problem.least_group(every | more)
            if group is None or (least is not None and least <= _received(group, fewest, bare=bare)):
                continue
            held = self._held(*where, others & ~more, into | off) if others & ~more else fewest
            if held != NOWHERE:
                price = _received(group, held, bare=bare)
                least = price if least is None else min(least, price)
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
        if self.problem.holdings.even and not barred:
            return self.problem.holdings.anywhere[home | still | cut]
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


def _received(group: CollectiveGroup, held: int, *, bare: bool) -> int:
    """What an exchange costs after which a rank holds so much, of which it had as large a part as it can, or none."""
    return group.price(held if bare else held - held // group.ranks)


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
