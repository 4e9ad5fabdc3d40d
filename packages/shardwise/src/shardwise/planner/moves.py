"""The steps that a search over layouts may take, each with its exact cost. A layout here is small integers.

Axes are numbers. A state is (pending, entries): the bits of the axes over which a reduction is pending, and for every
tensor dim the axes that cut it, outermost first. Every other axis holds equal tensors. R and I are one in a state,
because they hold the same bits; which of them is meant is settled when the path is known (``route.py``).

A shard is what ``torch.chunk`` cuts: ceil(length / ranks) elements, the last ranks have fewer or none. The rank that
stands first in everything holds most, and lengths here are its lengths.

Worked case, axes a=2 and b=4, shape (8, 8): from S(1) over (a, b), state (0, ((), (0, 1))), one exchange over both
axes at once leads to S(0) over (a, b), (0, ((0, 1), ())). A rank holds 8 elements before and after, keeps one of them,
and receives 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .cost import cost_of, exchanged

Entries = tuple[tuple[int, ...], ...]
State = tuple[int, Entries]


class Move(NamedTuple):
    """One step from a state: ``weight`` is its time in attoseconds, an int, so that sums are exact.

    ``collective``  1 if ranks wait for each other in it.
    ``elements``, ``messages``  what the rank that receives most receives.
    """

    weight: int
    collective: int
    op: str
    axes: tuple[int, ...]
    after: State
    elements: int = 0
    messages: int = 0


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

    even: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        whole = math.prod(self.sizes)
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
        count = 1
        for at in enumerate(entries):
            known = self.lengths.get(at)
            count *= self.length(*at) if known is None else known
        return count

    def ranks(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    def can_join(self, axes: tuple[int, ...]) -> bool:
        """One collective can run over all of ``axes``."""
        return len(axes) == 1 or self.together is None or _bits(axes) in self.together

    @property
    def dims(self) -> tuple[int, ...]:
        """The tensor dims that steps may cut: those that are cut at either end, and the longest other one."""
        used = {dim for _, entries in (self.start, self.goal) for dim, entry in enumerate(entries) if entry}
        others = [dim for dim in range(len(self.shape)) if dim not in used]
        return tuple(sorted(used | set(sorted(others, key=lambda dim: -self.shape[dim])[:1])))

    def weigh(self, op: str, axes: tuple[int, ...], after: State, elements: int, messages: int) -> Move:
        """The collective with its time: the slowest of its axes carries it."""
        rates = self.rates.get(axes)
        if rates is None:
            pairs = {(self.latencies[axis], self.weights[axis] * self.itemsize) for axis in axes}
            rates = self.rates[axes] = tuple(pairs)
        if len(rates) == 1:
            ((latency, weight),) = rates
            return Move(messages * latency + elements * weight, 1, op, axes, after, elements, messages)
        time = max([messages * latency + elements * weight for latency, weight in rates])
        return Move(time, 1, op, axes, after, elements, messages)


def moves(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Move]:
    """Every step from ``state`` that cuts no dim but ``dims``."""
    held = problem.elements(state[1])
    yield from _local(problem, state, dims)
    for move in itertools.chain(
        _gathers(problem, state, held), _exchanges(problem, state, dims), _reductions(problem, state, held, dims)
    ):
        if problem.most is None or problem.elements(move.after[1]) <= problem.most:
            yield move


def _local(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Move]:
    """Cut what is equal everywhere, or make it, or a shard, an addend of a pending sum."""
    pending, entries = state
    cut = {axis for entry in entries for axis in entry}
    goal = problem.goal[1]
    for axis in range(len(problem.sizes)):
        bit = 1 << axis
        if (pending | problem.fixed) & bit:
            continue
        if problem.made & bit and (axis not in cut or any(entry and entry[-1] == axis for entry in entries)):
            whole = tuple(entry[:-1] if entry and entry[-1] == axis else entry for entry in entries)
            if problem.most is None or problem.elements(whole) <= problem.most:
                yield Move(0, 0, "convert", (axis,), (pending | bit, whole))
        if axis in cut:
            continue
        for dim in dims:
            wanted = axis in goal[dim]
            if (wanted or problem.length(dim, entries[dim]) > 1) and (
                wanted or _in_helping_order(problem, entries[dim], axis)
            ):
                yield Move(0, 0, "convert", (axis,), (pending, _with(entries, dim, (*entries[dim], axis))))


def _in_helping_order(problem: Problem, entry: tuple[int, ...], axis: int) -> bool:
    """An axis that only shares the work, and is gathered again: the slow one innermost, which is gathered first, when
    there is least to send."""
    if not entry or any(entry[-1] in goal for goal in problem.goal[1]):
        return True
    last = entry[-1]
    return (problem.weights[last], last) < (problem.weights[axis], axis)


def _gathers(problem: Problem, state: State, held: int) -> Iterator[Move]:
    pending, entries = state
    for dim, entry in enumerate(entries):
        for count in range(1, len(entry) + 1):
            axes = entry[-count:]
            if problem.can_join(axes):
                cost = cost_of("all_gather", held, problem.ranks(axes))
                after = (pending, _with(entries, dim, entry[:-count]))
                yield problem.weigh("all_gather", axes, after, cost.elements, cost.messages)


def _reductions(problem: Problem, state: State, held: int, dims: tuple[int, ...]) -> Iterator[Move]:
    pending, entries = state
    axes = [axis for axis in range(len(problem.sizes)) if pending & ~problem.fixed & ~problem.made & (1 << axis)]
    for chosen in _subsets(axes):
        if len({problem.kinds[axis] for axis in chosen}) > 1 or not problem.can_join(chosen):
            continue
        count, left = problem.ranks(chosen), pending & ~_bits(chosen)
        cost = cost_of("all_reduce", held, count)
        yield problem.weigh("all_reduce", chosen, (left, entries), cost.elements, cost.messages)
        for dim in dims:
            if problem.length(dim, entries[dim]) == 1 and not set(chosen) & set(problem.goal[1][dim]):
                continue
            order = _goal_order(problem, dim, chosen)
            after = _with(entries, dim, entries[dim] + order)
            cost = cost_of("all_gather", problem.elements(after), count)  # as many, the other way round
            yield problem.weigh("reduce_scatter", order, (left, after), cost.elements, cost.messages)


def _goal_order(problem: Problem, dim: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    """In the order in which they cut ``dim`` at the goal; those that do not come after, the slow ones innermost."""
    goal = problem.goal[1][dim]
    if len(axes) == 1:
        return axes
    return tuple(
        sorted(axes, key=lambda axis: (goal.index(axis) if axis in goal else len(goal), problem.weights[axis], axis))
    )


def _exchanges(problem: Problem, state: State, dims: tuple[int, ...]) -> Iterator[Move]:
    """Take the innermost axes of some dims off, and cut the same or other dims by them: shards stay shards."""
    pending, entries = state
    for counts in itertools.product(*(range(len(entry) + 1) for entry in entries)):
        taken = [entry[len(entry) - count :] for entry, count in zip(entries, counts, strict=True)]
        axes = tuple(sorted(itertools.chain.from_iterable(taken)))
        if not axes or not problem.can_join(axes):
            continue
        kept = tuple(entry[: len(entry) - count] for entry, count in zip(entries, counts, strict=True))
        size = problem.ranks(axes)
        for placed in _arrangements(axes, dims, tuple(taken)):
            after = tuple([one + other for one, other in zip(kept, placed, strict=True)])
            messages, received = exchanged(problem.elements(after), overlap(problem, entries, after), size)
            yield problem.weigh("all_to_all", axes, (pending, after), received, messages)


def overlap(problem: Problem, before: Entries, after: Entries) -> int:
    """How many elements of its block ``after`` every rank is sure to hold ``before``.

    Blocks of a dim lie inside each other where one entry begins with the other. Where they do not, some rank has
    nothing of its new block.
    """
    count = 1
    for dim, (old, new) in enumerate(zip(before, after, strict=True)):
        shorter = min(len(old), len(new))
        if old[:shorter] != new[:shorter]:
            return 0
        count *= problem.length(dim, old if len(old) > len(new) else new)
    return count


@lru_cache(maxsize=4096)
def _arrangements(axes: tuple[int, ...], dims: tuple[int, ...], taken: Entries) -> tuple[Entries, ...]:
    """All ways to let every one of ``axes``, which have cut as ``taken`` says, cut one of ``dims``, in any order.

    An axis that stays outermost where it was has not moved: that is an exchange over fewer axes, and left out.
    """
    found: list[Entries] = [((),) * len(taken)]
    for axis in axes:
        found = [
            _with(entries, dim, (*entries[dim][:at], axis, *entries[dim][at:]))
            for entries in found
            for dim in dims
            for at in range(len(entries[dim]) + 1)
        ]
    return tuple(
        placed
        for placed in found
        if not any(old and new and old[0] == new[0] for old, new in zip(taken, placed, strict=True))
    )


def _subsets(axes: list[int]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


def _with(entries: Entries, dim: int, entry: tuple[int, ...]) -> Entries:
    return (*entries[:dim], entry, *entries[dim + 1 :])


def _bits(axes: tuple[int, ...]) -> int:
    return sum(1 << axis for axis in axes)
