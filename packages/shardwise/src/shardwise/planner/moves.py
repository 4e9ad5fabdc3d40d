"""The steps that a search over layouts may take, each with its exact cost.

Worked case, axes a=2 and b=4, shape (8, 8): from S(1) over (a, b), state (0, ((), (0, 1))), one exchange over both
axes at once leads to S(0) over (a, b), (0, ((0, 1), ())). A rank holds 8 elements before and after, keeps one of them,
and receives 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from .cost import ring
from .cuts import Entries, bits_of
from .problem import DIGITS, ONE, Problem, Rates, State


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


class Fan(NamedTuple):
    """Steps that differ in the cut that they lead to: a search looks at many more than it takes.

    ``pending``  bits of the axes over which a reduction is pending afterwards.
    ``ends``     of every step: the number of the cut, its ``spent``, and its ``elements``.
    """

    op: str
    axes: tuple[int, ...]
    pending: int
    messages: int
    ends: Iterable[tuple[int, int, int]]


def moves(problem: Problem, state: State) -> Iterator[Move]:
    """Every step from ``state``."""
    entries = problem.cuts.entries
    for op, axes, pending, messages, ends in fans(problem, state[0], problem.cuts.number(state[1])):
        for number, spent, elements in ends:
            yield Move(spent, op, axes, (pending, entries[number]), elements, messages)


class Approach(NamedTuple):
    """What a search knows of a state when it looks at its steps, by which it need not look at all of them.

    ``step``, ``elements``  the step by which it was reached.
    ``alike``               a state was looked at before that is cut by the same axes and cost no more.
    ``sofar``, ``spent``    what it cost, and by cut what states cost at which as much is pending.
    ``least``               nothing that costs as much is wanted.
    """

    step: Fan | None = None
    elements: int = 0
    alike: bool = False
    sofar: int = 0
    spent: Mapping[int, int] = MappingProxyType({})
    least: int | float = math.inf


UNKNOWN = Approach()


def fans(problem: Problem, pending: int, number: int, approach: Approach = UNKNOWN) -> Iterator[Fan]:
    """Every step from a state, without those that are of no use by its ``approach``."""
    found = itertools.chain(
        _local(problem, pending, number),
        _gathers(problem, pending, number, approach),
        _exchanges(problem, pending, number, approach),
        _reductions(problem, pending, number),
    )
    if problem.most is None:
        return found
    most = problem.most
    return (
        Fan(op, axes, left, messages, [end for end in ends if problem.held(end[0]) <= most])
        for op, axes, left, messages, ends in found
    )


def _local(problem: Problem, pending: int, number: int) -> Iterator[Fan]:
    """Cut what is equal everywhere, or make it, or a shard, an addend of a pending sum."""
    cuts = problem.cuts
    entries, cut = cuts.entries[number], cuts.bits[number]
    still = pending | problem.fixed
    for axis, bit in enumerate(1 << axis for axis in range(len(problem.sizes))):
        if problem.made & bit & ~still and (not cut & bit or any(entry and entry[-1] == axis for entry in entries)):
            whole = tuple(entry[:-1] if entry and entry[-1] == axis else entry for entry in entries)
            yield Fan("convert", (axis,), pending | bit, 0, ((cuts.number(whole), 1, 0),))
    for axis in range(len(problem.sizes)):
        if not (still | cut) >> axis & 1:
            for after in cuts.inside(number, (axis,)):
                if not (problem.wide and _astray(cuts.entries[after], axis, problem.goal[1])):
                    yield Fan("convert", (axis,), pending, 0, ((after, 1, 0),))


def _astray(entries: Entries, axis: int, goal: Entries) -> bool:
    """``axis`` does not stand where it stands at the goal."""
    return any(axis in entry and entry != wanted[: len(entry)] for entry, wanted in zip(entries, goal, strict=True))


def _gathers(problem: Problem, pending: int, number: int, approach: Approach) -> Iterator[Fan]:
    held, sofar, least, reached = problem.held(number), approach.sofar, approach.least, approach.spent
    for axes, after in problem.cuts.gathers(number):
        group = problem.group(axes)
        if group is not None:
            messages, elements = ring("all_gather", held, group.ranks)
            spent = group.price(elements)
            if reached.get(after, least) > sofar + spent:
                yield Fan("all_gather", axes, pending, messages, ((after, spent, elements),))


def _reductions(problem: Problem, pending: int, number: int) -> Iterator[Fan]:
    summed = pending & ~problem.fixed & ~problem.made
    if not summed:
        return
    cuts = problem.cuts
    for chosen in _subsets([axis for axis in range(len(problem.sizes)) if summed >> axis & 1]):
        group = problem.group(chosen)
        if group is None or len({problem.kinds[axis] for axis in chosen}) > 1:
            continue
        count, _, price = group
        left = pending & ~bits_of(chosen)
        messages, elements = ring("all_reduce", problem.held(number), count)  # twice round the ring, as one collective
        yield Fan("all_reduce", chosen, left, messages, ((number, 2 * price(elements // 2) - ONE, elements),))
        messages, others = ring("all_gather", 1, count)  # as many, the other way round
        for order in [chosen] if problem.wide else itertools.permutations(chosen):
            ends = []
            for after in cuts.inside(number, order):
                elements = others * problem.held(after)
                ends.append((after, price(elements), elements))
            yield Fan("reduce_scatter", order, left, messages, ends)


def _exchanges(problem: Problem, pending: int, number: int, approach: Approach) -> Iterator[Fan]:
    """Take the innermost axes of some dims off, and cut the same or other dims by them: shards stay shards.

    After an exchange, another at its pace is left out where one over the axes of both does as much in no more time,
    though it bring a whole block: where the second brings one, or what it leaves to a rank is no more than the first
    has brought. That is at most a block by the number of ranks, and so always where shards are even.
    """
    cuts, held, lacked = problem.cuts, problem.held, problem.lacked
    found = cuts.straight(number, problem.goal[1]) if problem.wide else cuts.exchanges(number)
    useless, covered, before, (step, brought, alike, sofar, reached, least) = None, None, None, approach
    whole = problem.share(cuts.bits[number])
    if found and problem.one_for_two:
        if step is not None and step.op == "all_to_all":
            before = _rates(problem, step.axes)
            if problem.even or brought == held(number):
                useless = before
        if alike:  # The other state leads there over all axes, with the last exchange.
            covered = _rates(problem, found[-1].axes)
    even, reaching = problem.even, reached.get
    for axes, bare, sharing in found:
        group = problem.group(axes)
        if group is None or group.rates is useless:
            continue
        ranks, rates, price = group
        ends: list[tuple[int, int, int]] = []
        if bare and rates is not covered and rates is not before:
            spent, elements = price(whole), whole
            most = sofar + spent
            for after in bare:
                if reaching(after, least) > most:
                    if not even:
                        elements = held(after)
                        spent = price(elements)
                    ends.append((after, spent, elements))
        if sharing:
            elements = whole - whole // ranks
            spent = price(elements)
            most = sofar + spent
            for after, remnants in sharing:
                if reaching(after, least) > most:
                    if not even:
                        if rates is before and held(after) <= brought * ranks:
                            continue
                        elements = lacked(after, remnants)
                        spent = price(elements)
                    ends.append((after, spent, elements))
        if ends:
            yield Fan("all_to_all", axes, pending, ranks - 1, ends)


def _rates(problem: Problem, axes: tuple[int, ...]) -> Rates | None:
    group = problem.group(axes)
    return group and group.rates


def _subsets(axes: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)
