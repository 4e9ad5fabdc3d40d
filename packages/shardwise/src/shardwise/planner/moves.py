"""The steps that a search over layouts may take, each with its exact cost.

Worked case, axes a=2 and b=4, shape (8, 8): from S(1) over (a, b), state (0, ((), (0, 1))), one exchange over both
axes at once leads to S(0) over (a, b), (0, ((0, 1), ())). A rank holds 8 elements before and after, keeps one of them,
and receives 7.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from .cost import ring
from .cuts import Entries, TakenOff, arrivals, axes_of, bits_of, placements, subsets
from .problem import DIGITS, ONE, CollectiveGroup, Problem, State


class Move(NamedTuple):
    """One step from a state.

    ``spent``     its time in attoseconds, whether it is a collective, and whether it is not, as the digits of one
                  number: sums are exact, and the smaller one is the cheaper one.
    ``elements``, ``messages``  what the rank that receives most receives.
    """

    spent: int
    op: str
    axes: tuple[int, ...]
    after: State
    elements: int = 0
    messages: int = 0

    @property
    def time(self) -> int:
        """Attoseconds."""
        return self.spent >> 2 * DIGITS

    @property
    def collective(self) -> int:
        """1 if ranks wait for each other in it."""
        return self.spent >> DIGITS & 1


End = tuple[int, int, int]
"""Of a step: the number of the cut that it leads to, its ``spent``, and its ``elements``."""


class Fan(NamedTuple):
    """Steps that differ in the cut that they lead to: a search looks at many more than it takes.

    ``least``   what the cheapest of them costs, or less.
    ``bits``    of ``axes``: no reduction may be pending over these before, if ``summed`` does not say so.
    ``summed``  bits of the axes over which none is pending any more, and ``made`` of those over which one is now.
    ``aim``     bits of those that can cut where they are to stay after one of several steps.
    ``ends``    of the only step, or gives those of all.
    ``finer``   gives smaller fans in place of ends, which know more of what their steps cost.
    """

    op: str
    axes: tuple[int, ...]
    messages: int
    least: int
    bits: int
    summed: int
    made: int
    aim: int
    ends: tuple[End, ...] | Callable[[], Iterable[End]]
    finer: Callable[[], Iterable[Fan]] | None = None

    @property
    def late(self) -> bool:
        """Its ends are not known yet."""
        return self.finer is not None or callable(self.ends)


def moves(problem: Problem, state: State) -> Iterator[Move]:
    """Every step from ``state``."""
    entries, pending = problem.cuts.entries, state[0]
    for coarse in Fans(problem, every=True).of(pending, problem.cuts.number(state[1])):
        for fan in (coarse,) if coarse.finer is None else coarse.finer():
            after = pending & ~fan.summed | fan.made
            for number, spent, elements in fan.ends() if callable(fan.ends) else fan.ends:
                yield Move(spent, fan.op, fan.axes, (after, entries[number]), elements, fan.messages)


class Fans:
    """The steps from states that may be of use, or ``every`` one."""

    def __init__(self, problem: Problem, *, every: bool = False) -> None:
        self.problem = problem
        self.settled = (False,) * len(problem.shape) if every else problem.settled
        self.homes = sum(problem.homes)
        self.none: Entries = ((),) * len(problem.shape)
        self._of_cuts: dict[int, tuple[list[Fan], list[Fan]]] = {}

    def of(self, pending: int, number: int, last: Fan | None = None) -> Iterator[Fan]:
        """Those from one state, to which a step of ``last`` has led.

        An axis that cuts at the goal and is equal cuts at once where the dim is ``settled``, if all that are to be
        outside it do. Cuts of other dims can be made in any order: of those in a row the first dim's come first.
        """
        known = self._of_cuts.get(number)
        if known is None:
            known = self._of_cuts[number] = self._at_once(number), list(self._of_cut(number))
        for fan in known[0]:
            if not fan.bits & pending:
                return iter((fan,))
        found = itertools.chain(
            self._made(pending, number) if self.problem.made & ~pending else (),
            self._cuts(pending, number, last),
            (fan for fan in known[1] if not fan.bits & pending),
        )
        summed = pending & ~self.problem.fixed & ~self.problem.made
        found = itertools.chain(self._reductions(summed, number), found) if summed else found
        return found if self.problem.most is None else _small(self.problem, found, self.problem.most)

    def _cuts(self, pending: int, number: int, last: Fan | None) -> Iterator[Fan]:
        """Cut what is equal everywhere."""
        problem = self.problem
        still, first = problem.fixed | problem.cuts.bits[number] | pending, 0
        if last is not None and last.op == "convert" and callable(last.ends):
            first = next(
                at for at, dim in enumerate(problem.cuts.dims) if problem.cuts.entries[number][dim][-1:] == last.axes
            )
        for axis in range(len(problem.sizes)):
            if not still >> axis & 1:
                bit, ends = 1 << axis, partial(_cut_ends, problem, number, axis, first)
                yield Fan("convert", (axis,), 0, 1, bit, 0, 0, bit, ends)

    def _at_once(self, number: int) -> list[Fan]:
        problem = self.problem
        return [
            _cut(axis, after)
            for axis, dim, after in problem.cuts.wanted(number, problem.goal[1])
            if self.settled[dim] and not problem.fixed >> axis & 1
        ]

    def _made(self, pending: int, number: int) -> Iterator[Fan]:
        """Make what is equal everywhere, or a shard, an addend of a pending sum."""
        problem, entries, cut = self.problem, self.problem.cuts.entries[number], self.problem.cuts.bits[number]
        for axis, bit in enumerate(1 << axis for axis in range(len(problem.sizes))):
            inner = not cut & bit or any(entry and entry[-1] == axis for entry in entries)
            if inner and problem.made & bit & ~pending:
                whole = tuple(entry[:-1] if entry and entry[-1] == axis else entry for entry in entries)
                yield Fan("convert", (axis,), 0, 1, bit, 0, bit, 0, ((problem.cuts.number(whole), 1, 0),))

    def _of_cut(self, number: int) -> Iterator[Fan]:
        """Gather, and exchange. An axis that is best left where it is stays there."""
        problem, cuts = self.problem, self.problem.cuts
        held = problem.held(number)
        staying = self._staying(cuts.entries[number])
        for axes, bits, after in cuts.gathers(number):
            group = None if bits & staying else problem.group(bits)
            if group is not None:
                messages, elements = ring("all_gather", held, group.ranks)
                spent = group.price(elements)
                yield Fan("all_gather", axes, messages, spent, bits, 0, 0, 0, ((after, spent, elements),))
        yield from self._exchanges(number, staying)

    def _staying(self, entries: Entries) -> int:
        found = 0
        for entry, wanted, settled in zip(entries, self.problem.goal[1], self.settled, strict=True):
            if settled:
                for axis, other in zip(entry, wanted, strict=False):
                    if axis != other:
                        break
                    found |= 1 << axis
        return found

    def _exchanges(self, number: int, staying: int) -> Iterator[Fan]:
        """Take the innermost axes of some dims off, and cut the same or other dims by them: shards stay shards."""
        problem, cuts = self.problem, self.problem.cuts
        held = problem.holdings.anywhere[cuts.bits[number]]
        for bits in cuts.removable(number):
            group = None if bits & staying else problem.group(bits)
            if group is None:
                continue
            axes, messages = axes_of(bits), group.ranks - 1
            if problem.wide:
                off = cuts.taken_off(number, bits)
                after = cuts.straight(number, off, problem.goal[1])
                if after is not None:
                    end = _exchanged(problem, group, after, ())
                    yield Fan("all_to_all", axes, messages, end[1], bits, 0, 0, bits, (end,))
            else:
                least = group.price(held - held // group.ranks)
                finer = partial(self._arrivals, number, bits, group)
                yield Fan("all_to_all", axes, messages, least, bits, 0, 0, bits, (), finer)

    def _arrivals(self, number: int, bits: int, group: CollectiveGroup) -> Iterator[Fan]:
        """The exchanges over these axes; those by which some come to where they cut at the goal are fans of their own.

        The rest has fewer ways to be arranged. Where an axis comes to a dim off which one is taken some rank has
        nothing of its new block, elsewhere each has some.
        """
        problem = self.problem
        off = problem.cuts.taken_off(number, bits)
        kept, taken = off.kept, off.taken
        for come in arrivals(off, problem.goal[1]) if bits & self.homes else (None,):
            base, on_dims, aim, bare = kept, off.on_dims, 0, False
            if come is not None and any(come):
                base = tuple(map(operator.add, kept, come))
                arrived = tuple(map(bits_of, come))
                aim = sum(arrived)
                on_dims = tuple(map(operator.or_, on_dims, arrived))
                bare = any(bool(one and other) for one, other in zip(taken, come, strict=True))
            ends: tuple[End] | Callable[[], Iterable[End]]
            if aim == bits:
                parts = () if bare else problem.least_parts(off)
                ends = (_exchanged(problem, group, problem.cuts.number(base), parts),)
                spent = ends[0][1]
            else:
                held = problem.holdings.least(on_dims, bits & ~aim)
                spent = group.price(held if bare else held - held // group.ranks)
                ends = partial(_arranged, problem, off, group, base, come or self.none)
            yield Fan("all_to_all", off.axes, group.ranks - 1, spent, bits, 0, 0, aim, ends)

    def _reductions(self, summed: int, number: int) -> Iterator[Fan]:
        problem = self.problem
        held, cut = problem.held(number), problem.cuts.on_dims[number]
        for bits in subsets(summed):
            axes, group = axes_of(bits), problem.group(bits)
            if group is None or not problem.one_kind(bits):
                continue
            messages, elements = ring("all_reduce", held, group.ranks)
            spent = 2 * group.price(elements // 2) - ONE  # twice round the ring, as one collective
            yield Fan("all_reduce", axes, messages, spent, 0, bits, 0, 0, ((number, spent, elements),))
            messages, others = ring("all_gather", 1, group.ranks)  # as many, the other way round
            spent = group.price(others * problem.holdings.least(cut, bits))
            ends = partial(_scattered, problem, number, axes, group, others)
            yield Fan("reduce_scatter", axes, messages, spent, 0, bits, 0, bits, ends)


def _cut(axis: int, after: int) -> Fan:
    return Fan("convert", (axis,), 0, 1, 1 << axis, 0, 0, 0, ((after, 1, 0),))


def _astray(entries: Entries, axis: int, goal: Entries) -> bool:
    """``axis`` does not stand where it stands at the goal."""
    return any(axis in entry and entry != wanted[: len(entry)] for entry, wanted in zip(entries, goal, strict=True))


def _cut_ends(problem: Problem, number: int, axis: int, first: int) -> Iterator[End]:
    cuts = problem.cuts
    for after in cuts.inside(number, (axis,))[first:]:
        if not (problem.wide and _astray(cuts.entries[after], axis, problem.goal[1])):
            yield after, 1, 0


def _small(problem: Problem, found: Iterable[Fan], most: int) -> Iterator[Fan]:
    """Those that lead to no tensor of more than ``most`` elements."""
    for fan in found:
        op, axes, messages, least, bits, summed, made, aim, ends, finer = fan
        if finer is not None:
            finer = partial(_small, problem, finer(), most)
            yield Fan(op, axes, messages, least, bits, summed, made, aim, ends, finer)
        elif callable(ends):
            ends = partial(_small_ends, problem, ends, most)
            yield Fan(op, axes, messages, least, bits, summed, made, aim, ends)
        elif problem.held(ends[0][0]) <= most:
            yield fan


def _small_ends(problem: Problem, ends: Callable[[], Iterable[End]], most: int) -> Iterator[End]:
    return (end for end in ends() if problem.held(end[0]) <= most)


def _scattered(
    problem: Problem, number: int, axes: tuple[int, ...], group: CollectiveGroup, others: int
) -> Iterator[End]:
    for order in [axes] if problem.wide else itertools.permutations(axes):
        inside = problem.cuts.inside(number, order)
        for after in inside if problem.places is None else _few(problem, inside, axes, problem.places):
            elements = others * problem.held(after)
            yield after, group.price(elements), elements


def _few(problem: Problem, inside: tuple[int, ...], axes: tuple[int, ...], places: int) -> Iterator[int]:
    """Of the cuts of each dim by ``axes`` those in which they stand as at the goal, and so many ``places`` else.

    A dim that nothing is to come to is better, and of such the one that leaves a rank least.
    """
    cuts, goal = problem.cuts, problem.goal[1]
    aside = []
    for dim, after in zip(cuts.dims, inside, strict=True):
        if _astray(cuts.entries[after], axes[-1], goal):
            entry = cuts.entries[after][dim]
            aside.append((any(axis not in entry for axis in goal[dim]), problem.held(after), after))
        else:
            yield after
    yield from (after for _, _, after in sorted(aside)[:places])


def _arranged(problem: Problem, off: TakenOff, group: CollectiveGroup, base: Entries, come: Entries) -> Iterator[End]:
    """The ends of an exchange after which ``base`` is cut by the rest of the axes inside, nowhere as at the goal."""
    cuts, goal = problem.cuts, problem.goal[1]
    rest = axes_of(off.bits & ~sum(map(bits_of, come)))
    no_axis = -1
    before = [entry[0] if entry else no_axis for entry in off.taken]
    wanted = [
        aim[len(entry)] if len(entry) < len(aim) and entry == aim[: len(entry)] else no_axis
        for entry, aim in zip(base, goal, strict=True)
    ]
    parts = problem.least_parts(off)
    for first, all_placed in placements(rest, cuts.dims, cuts.ndim).items():
        now = [entry[0] if entry else other for entry, other in zip(come, first, strict=True)]
        if any(map(operator.eq, first, wanted)) or any(map(operator.eq, now, before)):
            continue
        bare = any(old != no_axis and new is not None for old, new in zip(before, now, strict=True))
        for placed in all_placed:
            after = cuts.number(tuple(map(operator.add, base, placed)))
            yield _exchanged(problem, group, after, () if bare else parts)


def _exchanged(problem: Problem, group: CollectiveGroup, after: int, kept: Sequence[tuple[int, int]]) -> End:
    """The end of an exchange: a rank keeps such parts of its new block, on one dim after the other, or nothing."""
    held = rest = problem.held(after)
    for part, block in kept:
        rest = rest * part // block
    received = held - rest if kept else held
    return after, group.price(received), received
