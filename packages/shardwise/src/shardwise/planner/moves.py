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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .cost import cost_of

Entries = tuple[tuple[int, ...], ...]
State = tuple[int, Entries]
Found = tuple[int, str, tuple[int, ...], State, int, int]
"""The fields of a move: a search looks at many more than it takes."""
DIGITS = 12
"""Bits for the collectives of a plan, and for its local steps."""
ONE = 1 << DIGITS
MOST_WAYS = 3000
"""So many ways to arrange all axes on the dims, 4 axes on 5 dims or 5 on 3, are looked at; of more only those that lead
straight to the goal, and then a cheaper plan may exist."""


Arrangements = tuple[tuple[tuple[int, ...], tuple[tuple[Entries, Entries | None], ...]], ...]


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
    lengths: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict, compare=False)
    rates: dict[tuple[int, ...], tuple[tuple[int, int], ...]] = field(default_factory=dict, compare=False)

    counts: dict[Entries, int] = field(default_factory=dict, compare=False)
    least: dict[tuple[int, tuple[int, ...], int], int] = field(default_factory=dict, compare=False)
    even: bool = field(init=False, compare=False)
    wide: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        whole = math.prod(self.sizes)
        moved = sum(1 for axis in range(len(self.sizes)) if not self.fixed >> axis & 1)
        ways = math.prod(len(self.dims) + at for at in range(moved))
        object.__setattr__(self, "wide", ways > MOST_WAYS)
        object.__setattr__(self, "even", all(length % whole == 0 for length in self.shape))

    def length(self, dim: int, entry: tuple[int, ...]) -> int:
        """How much of ``dim`` the first rank holds where ``entry`` cuts it."""
        known = self.lengths.get((dim, entry))
        if known is None:
            known = self.shape[dim]
            for axis in entry:
                known = -(-known // self.sizes[axis])
            self.lengths[dim, entry] = known
        return known

    def local_shape(self, state: State) -> tuple[int, ...]:
        """The shape of the first rank's tensor."""
        return tuple(self.length(dim, entry) for dim, entry in enumerate(state[1]))

    def elements(self, entries: Entries) -> int:
        """How many elements the first rank holds."""
        count = self.counts.get(entries)
        if count is None:
            count = self.counts[entries] = math.prod(itertools.starmap(self.length, enumerate(entries)))
        return count

    def kept(self, common: Entries, after: Entries) -> int:
        """Of a block cut by ``after``, the least that a rank has if the rest of ``common`` cuts what it has of it."""
        if self.even:
            return self.elements(common)
        count = 1
        for dim, (had, new) in enumerate(zip(common, after, strict=True)):
            known = self.least.get((dim, had, len(new)))
            if known is None:
                pieces = {self.length(dim, new)}
                for axis in had[len(new) :]:
                    pieces = {piece for length in pieces for piece in _pieces(length, self.sizes[axis])}
                known = self.least[dim, had, len(new)] = min(pieces)
            count *= known
        return count

    def ranks(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    def can_join(self, axes: tuple[int, ...]) -> bool:
        """One collective can run over all of ``axes``."""
        return len(axes) == 1 or self.together is None or _bits(axes) in self.together

    @property
    def dims(self) -> tuple[int, ...]:
        """The tensor dims that steps may cut: two at least, those that are cut at either end, and another one.

        Of the others the one that is cut without remainder by most ranks is best, and of such the longest.
        """
        used = {dim for _, entries in (self.start, self.goal) for dim, entry in enumerate(entries) if entry}
        whole = math.prod(self.sizes)
        others = [dim for dim in range(len(self.shape)) if dim not in used]
        others.sort(key=lambda dim: (-math.gcd(self.shape[dim], whole), -self.shape[dim]))
        return tuple(sorted(used | set(others[: max(1, 2 - len(used))])))

    def rate(self, axes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Attoseconds per message and per element of ``axes``; those of several where no one is the slowest in all."""
        rates = self.rates.get(axes)
        if rates is None:
            pairs = {(self.latencies[axis], self.weights[axis] * self.itemsize) for axis in axes}
            slowest = (max(pair[0] for pair in pairs), max(pair[1] for pair in pairs))
            rates = self.rates[axes] = (slowest,) if slowest in pairs else tuple(pairs)
        return rates

    def weigh(self, op: str, axes: tuple[int, ...], after: State, elements: int, messages: int) -> Found:
        """The collective with its time: the slowest of its axes carries it."""
        time = max([messages * latency + elements * weight for latency, weight in self.rate(axes)])
        return time << 2 * DIGITS | ONE, op, axes, after, elements, messages


def moves(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Found]:
    """Every step from ``state`` that cuts no dim but ``dims``."""
    found = itertools.chain(
        _local(problem, state, dims),
        _gathers(problem, state),
        _exchanges(problem, state, dims),
        _reductions(problem, state, dims),
    )
    if problem.most is None:
        return found
    return (move for move in found if problem.elements(move[3][1]) <= problem.most)


def _local(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Found]:
    """Cut what is equal everywhere, or make it, or a shard, an addend of a pending sum."""
    pending, entries = state
    cut = _axes_of(entries)
    for axis in range(len(problem.sizes)):
        bit = 1 << axis
        if (pending | problem.fixed) & bit:
            continue
        if problem.made & bit and (not cut & bit or any(entry and entry[-1] == axis for entry in entries)):
            whole = tuple(entry[:-1] if entry and entry[-1] == axis else entry for entry in entries)
            yield 1, "convert", (axis,), (pending | bit, whole), 0, 0
        if not cut & bit:
            for dim in dims:
                if problem.wide and entries[dim] + (axis,) != problem.goal[1][dim][: len(entries[dim]) + 1]:
                    continue
                yield 1, "convert", (axis,), (pending, _with(entries, dim, (*entries[dim], axis))), 0, 0


def _gathers(problem: Problem, state: State) -> Iterator[Found]:
    pending, entries = state
    held = problem.elements(entries)
    for dim, entry in enumerate(entries):
        for count in range(1, len(entry) + 1):
            axes = entry[-count:]
            if problem.can_join(axes):
                cost = cost_of("all_gather", held, problem.ranks(axes))
                after = (pending, _with(entries, dim, entry[:-count]))
                yield problem.weigh("all_gather", axes, after, cost.elements, cost.messages)


def _reductions(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Found]:
    pending, entries = state
    axes = [axis for axis in range(len(problem.sizes)) if pending & ~problem.fixed & ~problem.made & (1 << axis)]
    for chosen in _subsets(axes):
        if len({problem.kinds[axis] for axis in chosen}) > 1 or not problem.can_join(chosen):
            continue
        count, left = problem.ranks(chosen), pending & ~_bits(chosen)
        cost = cost_of("all_reduce", problem.elements(entries), count)
        yield problem.weigh("all_reduce", chosen, (left, entries), cost.elements, cost.messages)
        orders: Iterable[tuple[int, ...]] = [chosen] if problem.wide else itertools.permutations(chosen)
        for dim, order in itertools.product(dims, orders):
            after = _with(entries, dim, entries[dim] + order)
            cost = cost_of("all_gather", problem.elements(after), count)  # as many, the other way round
            yield problem.weigh("reduce_scatter", order, (left, after), cost.elements, cost.messages)


def _exchanges(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Found]:
    """Take the innermost axes of some dims off, and cut the same or other dims by them: shards stay shards."""
    pending, entries = state
    count, known = problem.elements, problem.counts.get
    found = _straight(entries, problem.goal[1]) if problem.wide else _arrangements(entries, dims)
    for axes, arrangements in found:
        if not problem.can_join(axes):
            continue
        messages, rates = problem.ranks(axes) - 1, problem.rate(axes)
        for after, common in arrangements:
            received = known(after) or count(after)
            if common is not None:
                received -= (problem.even and known(common)) or problem.kept(common, after)
            if len(rates) == 1:
                ((latency, weight),) = rates
                time = messages * latency + received * weight
                yield time << 2 * DIGITS | ONE, "all_to_all", axes, (pending, after), received, messages
            else:
                yield problem.weigh("all_to_all", axes, (pending, after), received, messages)


@lru_cache(maxsize=4096)
def _arrangements(entries: Entries, dims: tuple[int, ...]) -> Arrangements:
    """By the axes that an exchange runs over: what ``entries`` can become, and the cuts of what every rank has of its
    new block; None where some rank has nothing of it. No number of ranks and no length plays a part in it.

    An axis that stays outermost of those taken off has not moved: that is an exchange over fewer axes, and left out.
    """
    found = []
    for counts in itertools.product(*(range(len(entry) + 1) for entry in entries)):
        taken = [entry[len(entry) - count :] for entry, count in zip(entries, counts, strict=True)]
        kept = [entry[: len(entry) - count] for entry, count in zip(entries, counts, strict=True)]
        axes = tuple(sorted(itertools.chain.from_iterable(taken)))
        if not axes:
            continue
        arrangements = []
        for placed in _placements(axes, dims, len(entries)):
            pairs = [(old, new) for old, new in zip(taken, placed, strict=True) if old and new]
            if any(old[0] == new[0] for old, new in pairs):
                continue
            after = tuple([one + other for one, other in zip(kept, placed, strict=True)])
            longer = tuple([max(one, other, key=len) for one, other in zip(entries, after, strict=True)])
            arrangements.append((after, None if pairs else longer))
        found.append((axes, tuple(arrangements)))
    return tuple(found)


def _straight(entries: Entries, goal: Entries) -> Arrangements:
    """One exchange for each set of axes to take off: what the goal has on a dim goes there, the rest where it was."""
    found = []
    home = {axis: dim for dim, entry in enumerate(goal) for axis in entry}
    order = {axis: at for entry in goal for at, axis in enumerate(entry)}
    for counts in itertools.product(*(range(len(entry) + 1) for entry in entries)):
        taken = [entry[len(entry) - count :] for entry, count in zip(entries, counts, strict=True)]
        placed: list[list[int]] = [[] for _ in entries]
        for dim, entry in enumerate(taken):
            for axis in entry:
                placed[home.get(axis, dim)].append(axis)
        kept = [entry[: len(entry) - count] for entry, count in zip(entries, counts, strict=True)]
        after = tuple(
            one + tuple(sorted(other, key=lambda axis: order.get(axis, len(order))))
            for one, other in zip(kept, placed, strict=True)
        )
        if after != entries:
            found.append((tuple(sorted(itertools.chain.from_iterable(taken))), ((after, None),)))
    return tuple(found)


@lru_cache(maxsize=4096)
def _placements(axes: tuple[int, ...], dims: tuple[int, ...], ndim: int) -> tuple[Entries, ...]:
    """All ways to let every one of ``axes`` cut one of ``dims``, in any order."""
    found: list[Entries] = [((),) * ndim]
    for axis in axes:
        found = [
            _with(entries, dim, (*entries[dim][:at], axis, *entries[dim][at:]))
            for entries in found
            for dim in dims
            for at in range(len(entries[dim]) + 1)
        ]
    return tuple(found)


@lru_cache(maxsize=4096)
def _axes_of(entries: Entries) -> int:
    return sum(_bits(entry) for entry in entries)


def _pieces(length: int, ranks: int) -> set[int]:
    """The lengths into which ``torch.chunk`` cuts."""
    piece = -(-length // ranks)
    return {max(0, min(piece, length - at * piece)) for at in (0, length // max(1, piece), ranks - 1) if at < ranks}


def _subsets(axes: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _with(entries: Entries, dim: int, entry: tuple[int, ...]) -> Entries:
    return (*entries[:dim], entry, *entries[dim + 1 :])


def _bits(axes: tuple[int, ...]) -> int:
    return sum(1 << axis for axis in axes)
