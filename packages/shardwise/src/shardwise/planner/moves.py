"""The steps that a search over layouts may take, each with its exact cost. A layout here is small integers.

Axes are numbers. A state is (pending, entries): the bits of the axes over which a reduction is pending, and for every
tensor dim the axes that cut it, outermost first. Every other axis holds equal tensors. R and I are one in a state,
because they hold the same bits; which of them is meant is settled when the path is known (``route.py``).

A shard is what ``torch.chunk`` cuts: ceil(length / ranks) elements, the last ranks have fewer or none. The rank that
stands first in everything holds most, and lengths here are its lengths. What an exchange brings counts for a rank that
needs as much and has least of it.

Worked case, axes a=2 and b=4, shape (8, 8): from S(1) over (a, b), state (0, ((), (0, 1))), one exchange over both
axes at once leads to S(0) over (a, b), (0, ((0, 1), ())). A rank holds 8 elements before and after, keeps one of them,
and receives 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from .cost import ring
from .cuts import Cuts, Entries, bits_of, cuts_of

State = tuple[int, Entries]
Rates = tuple[tuple[int, int], ...]
DIGITS = 12
"""Bits for the collectives of a plan, and for its local steps."""
ONE = 1 << DIGITS
MOST_WAYS = 3000
"""So many ways to arrange all axes on the dims, 4 axes on 5 dims or 5 on 3, are looked at; of more only those that lead
straight to the goal, and then a cheaper plan may exist."""


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


@dataclass(frozen=True)
class Problem:
    """Everything that the cost of a path between two states depends on.

    ``kinds``     the reduction that is pending over each axis; empty where none is at the start.
    ``fixed``     bits of axes that no step touches: varying ones, and those pending at both ends.
    ``made``      bits of axes that are pending at the goal and not at the start.
    ``together``  the sets of axes, as bits, over which one collective can run; None: any.
    ``weights``   attoseconds per byte over each axis; ``latencies`` attoseconds per message.
    ``most``      no tensor on the way may have more elements.
    """

    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    start: State
    goal: State
    kinds: tuple[str, ...]
    fixed: int
    made: int
    together: frozenset[int] | None
    weights: tuple[int, ...]
    latencies: tuple[int, ...]
    most: int | None = None
    cuts: Cuts = field(init=False, compare=False, repr=False)
    even: bool = field(init=False, compare=False)
    wide: bool = field(init=False, compare=False)
    one_for_two: bool = field(init=False, compare=False)
    _lengths: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict, init=False, compare=False)
    _held: dict[int, int] = field(default_factory=dict, init=False, compare=False)
    _shares: dict[int, int] = field(default_factory=dict, init=False, compare=False)
    _remain: dict[int, tuple[int, int]] = field(default_factory=dict, init=False, compare=False)
    _rates: dict[tuple[int, ...], Rates] = field(default_factory=dict, init=False, compare=False)
    _same: dict[Rates, Rates] = field(default_factory=dict, init=False, compare=False)
    _prices: dict[tuple[int, ...], Callable[[int], int]] = field(default_factory=dict, init=False, compare=False)
    _ranks: dict[tuple[int, ...], int] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        whole = math.prod(self.sizes)
        dims = self._dims(whole)
        moved = sum(1 for axis in range(len(self.sizes)) if not self.fixed >> axis & 1)
        wide = math.prod(len(dims) + at for at in range(moved)) > MOST_WAYS
        # What leads straight to one goal is of no use to another.
        cuts = Cuts(dims, len(self.shape)) if wide else cuts_of(len(self.sizes), dims, len(self.shape))
        object.__setattr__(self, "cuts", cuts)
        object.__setattr__(self, "wide", wide)
        # One exchange over the axes of two is possible, and no messages make it dearer.
        one_for_two = self.together is None and not wide and not any(self.latencies)
        object.__setattr__(self, "one_for_two", one_for_two)
        object.__setattr__(self, "even", all(length % whole == 0 for length in self.shape))

    def _dims(self, whole: int) -> tuple[int, ...]:
        """The tensor dims that steps may cut: two at least, those that are cut at either end, and another one.

        Of the others the one that is cut without remainder by most ranks is best, and of such the longest.
        """
        used = {dim for _, entries in (self.start, self.goal) for dim, entry in enumerate(entries) if entry}
        others = [dim for dim in range(len(self.shape)) if dim not in used]
        others.sort(key=lambda dim: (-math.gcd(self.shape[dim], whole), -self.shape[dim]))
        return tuple(sorted(used | set(others[: max(1, 2 - len(used))])))

    def length(self, dim: int, entry: tuple[int, ...]) -> int:
        """How much of ``dim`` the first rank holds where ``entry`` cuts it."""
        known = self._lengths.get((dim, entry))
        if known is None:
            known = -(-self.length(dim, entry[:-1]) // self.sizes[entry[-1]]) if entry else self.shape[dim]
            self._lengths[dim, entry] = known
        return known

    def local_shape(self, state: State) -> tuple[int, ...]:
        """The shape of the first rank's tensor."""
        return tuple(self.length(dim, entry) for dim, entry in enumerate(state[1]))

    def elements(self, entries: Entries) -> int:
        """How many elements the first rank holds."""
        return math.prod(itertools.starmap(self.length, enumerate(entries)))

    def held(self, number: int) -> int:
        """The same of the cut with that number."""
        count = self._held.get(number)
        if count is None:
            count = self._held[number] = self.elements(self.cuts.entries[number])
        return count

    def share(self, bits: int) -> int:
        """The least that the first rank holds where these axes cut: as much where shards are even."""
        share = self._shares.get(bits)
        if share is None:
            ranks = math.prod(size for axis, size in enumerate(self.sizes) if bits >> axis & 1)
            share = self._shares[bits] = -(-math.prod(self.shape) // ranks)
        return share

    def lacked(self, number: int, remnants: tuple[int, ...]) -> int:
        """The most that a rank lacks of a first block, of which it has no less than these remnants, one on a dim."""
        held = kept = self.held(number)
        for remnant in remnants:
            known = self._remain.get(remnant)
            if known is None:
                known = self._remain[remnant] = self._least(*self.cuts.remnants[remnant])
            kept = kept * known[0] // known[1]
        return held - kept

    def _least(self, dim: int, block: tuple[int, ...], rest: tuple[int, ...]) -> tuple[int, int]:
        """The smallest piece of a first block that ``rest`` cuts, and how long the block is."""
        length, ranks = self.length(dim, block), self.ranks(rest)
        if length % ranks == 0:
            return length // ranks, length or 1
        pieces = {length}
        for axis in rest[:-1]:
            pieces = {piece for one in pieces for piece in _pieces(one, self.sizes[axis])}
        return min([_last_piece(one, self.sizes[rest[-1]]) for one in pieces]), length

    def ranks(self, axes: tuple[int, ...]) -> int:
        """How many ranks a collective over ``axes`` joins."""
        ranks = self._ranks.get(axes)
        if ranks is None:
            ranks = self._ranks[axes] = math.prod([self.sizes[axis] for axis in axes])
        return ranks

    def can_join(self, axes: tuple[int, ...]) -> bool:
        """One collective can run over all of ``axes``."""
        return self.together is None or len(axes) == 1 or bits_of(axes) in self.together

    def rate(self, axes: tuple[int, ...]) -> Rates:
        """Attoseconds per message and per element of ``axes``; those of several where no one is the slowest in all.

        Rates that are the same are one object.
        """
        rates = self._rates.get(axes)
        if rates is None:
            pairs = {(self.latencies[axis], self.weights[axis] * self.itemsize) for axis in axes}
            slowest = (max(pair[0] for pair in pairs), max(pair[1] for pair in pairs))
            found = (slowest,) if slowest in pairs else tuple(sorted(pairs))
            rates = self._rates[axes] = self._same.setdefault(found, found)
        return rates

    def price(self, axes: tuple[int, ...]) -> Callable[[int], int]:
        """What a collective costs that goes once round the ring, by the elements that a rank receives: the slowest axis
        carries it."""
        price = self._prices.get(axes)
        if price is None:
            messages = self.ranks(axes) - 1
            rates = [(messages * latency << 2 * DIGITS | ONE, each << 2 * DIGITS) for latency, each in self.rate(axes)]
            price = self._prices[axes] = partial(_at_rate, *rates[0]) if len(rates) == 1 else partial(_slowest, rates)
        return price


def _at_rate(start: int, each: int, elements: int) -> int:
    return start + elements * each


def _slowest(rates: Iterable[tuple[int, int]], elements: int) -> int:
    return max([start + elements * each for start, each in rates])


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
    held = problem.held(number)
    for axes, after in problem.cuts.gathers(number):
        if problem.can_join(axes):
            messages, elements = ring("all_gather", held, problem.ranks(axes))
            spent = problem.price(axes)(elements)
            if approach.spent.get(after, approach.least) > approach.sofar + spent:
                yield Fan("all_gather", axes, pending, messages, ((after, spent, elements),))


def _reductions(problem: Problem, pending: int, number: int) -> Iterator[Fan]:
    summed = pending & ~problem.fixed & ~problem.made
    if not summed:
        return
    cuts = problem.cuts
    for chosen in _subsets([axis for axis in range(len(problem.sizes)) if summed >> axis & 1]):
        if len({problem.kinds[axis] for axis in chosen}) > 1 or not problem.can_join(chosen):
            continue
        count, left, price = problem.ranks(chosen), pending & ~bits_of(chosen), problem.price(chosen)
        messages, elements = ring("all_reduce", problem.held(number), count)  # twice round the ring, as one collective
        yield Fan("all_reduce", chosen, left, messages, ((number, 2 * price(elements // 2) - ONE, elements),))
        for order in [chosen] if problem.wide else itertools.permutations(chosen):
            for after in cuts.inside(number, order):
                messages, elements = ring("all_gather", problem.held(after), count)  # as many, the other way round
                yield Fan("reduce_scatter", order, left, messages, ((after, price(elements), elements),))


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
            before = problem.rate(step.axes)
            if problem.even or brought == held(number):
                useless = before
        if alike:  # The other state leads there over all axes, with the last exchange.
            covered = problem.rate(found[-1].axes)
    for axes, bare, sharing in found:
        rates = problem.rate(axes)
        if rates is useless or not problem.can_join(axes):
            continue
        price, ranks, ends = problem.price(axes), problem.ranks(axes), list[tuple[int, int, int]]()
        if bare and rates is not covered and rates is not before:
            spent = price(whole)
            wanted = [after for after in bare if reached.get(after, least) > sofar + spent]
            if problem.even:
                ends = [(after, spent, whole) for after in wanted]
            else:
                ends = [(after, price(held(after)), held(after)) for after in wanted]
        if sharing:
            part = whole - whole // ranks
            spent = price(part)
            left = [one for one in sharing if reached.get(one[0], least) > sofar + spent]
            if problem.even:
                ends += [(after, spent, part) for after, _ in left]
            else:
                for after, remnants in left:
                    if rates is not before or held(after) > brought * ranks:
                        elements = lacked(after, remnants)
                        ends.append((after, price(elements), elements))
        if ends:
            yield Fan("all_to_all", axes, pending, ranks - 1, ends)


def _pieces(length: int, ranks: int) -> set[int]:
    """The lengths into which ``torch.chunk`` cuts."""
    piece = -(-length // ranks)
    return {max(0, min(piece, length - at * piece)) for at in (0, length // max(1, piece), ranks - 1) if at < ranks}


def _last_piece(length: int, ranks: int) -> int:
    """The shortest of them."""
    return max(0, length - (ranks - 1) * -(-length // ranks))


def _subsets(axes: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)
