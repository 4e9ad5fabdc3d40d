"""The least cost of every move from one layout, by looking at every step of every layout in every order of axes.

Written without the planner, so that the two can be compared: nothing is left out because it does not seem to help.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

Entries = tuple[tuple[int, ...], ...]
State = tuple[frozenset[int], Entries]
Spent = tuple[int, int, int]
"""Attoseconds, collectives, local steps."""
Step = tuple[Spent, State, frozenset[int], frozenset[int]]
"""What a step costs, where it leads, the axes that it sums over, and those that it cuts by, or makes pending."""


@dataclass(frozen=True)
class Machine:
    """A mesh with its links, and a tensor: ``links`` are attoseconds per message and per byte of every axis."""

    sizes: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    itemsize: int = 4
    joins: bool = True
    _steps: dict[State, list[Step]] = field(default_factory=dict, compare=False)

    def held(self, entries: Entries) -> int:
        """Elements of the largest shard."""
        return math.prod(
            -(-length // math.prod(self.sizes[axis] for axis in entry))
            for length, entry in zip(self.shape, entries, strict=True)
        )

    def time(self, axes: Collection[int], elements: int, messages: int) -> int:
        """Of a collective over ``axes``: its slowest one's."""
        return max(
            messages * latency + elements * self.itemsize * weight
            for latency, weight in (self.links[at] for at in axes)
        )

    def ranks(self, axes: Collection[int]) -> int:
        return math.prod(self.sizes[axis] for axis in axes)

    def subsets(self, axes: Collection[int]) -> Iterator[tuple[int, ...]]:
        for count in range(1, (len(axes) if self.joins else 1) + 1):
            yield from itertools.combinations(sorted(axes), count)

    def kept(self, before: Entries, after: Entries) -> int:
        """What a rank has at least of a first block: none where on some dim neither block lies in the other."""
        count = 1
        for length, old, new in zip(self.shape, before, after, strict=True):
            both = min(len(old), len(new))
            if old[:both] != new[:both]:
                return 0
            pieces = [-(-length // self.ranks(new))]
            for axis in old[both:]:
                pieces = [piece for one in pieces for piece in chunks(one, self.sizes[axis])]
            count *= min(pieces)
        return count

    def steps(self, state: State, fixed: frozenset[int], made: frozenset[int]) -> Iterator[tuple[Spent, State]]:
        """Every step but of the ``fixed`` axes; those ``made`` may become pending, and stay so."""
        found = self._steps.get(state)
        if found is None:
            found = self._steps[state] = list(self._all_steps(state))
        pending = state[0]
        for cost, after, summed, changed in found:
            if not (summed & fixed or summed & made or changed & fixed or not (after[0] - pending) <= made):
                yield cost, after

    def _all_steps(self, state: State) -> Iterator[Step]:
        pending, entries = state
        held = self.held(entries)
        innermost = {entry[-1]: dim for dim, entry in enumerate(entries) if entry}
        cut = frozenset(itertools.chain.from_iterable(entries))
        none = frozenset[int]()
        for axis in frozenset(range(len(self.sizes))) - pending:
            changed = frozenset({axis})
            if axis not in cut:
                for dim in range(len(entries)):
                    yield (0, 0, 1), (pending, _with(entries, dim, (*entries[dim], axis))), none, changed
            if axis not in cut or axis in innermost:
                whole = tuple(entry[:-1] if entry[-1:] == (axis,) else entry for entry in entries)
                yield (0, 0, 1), (pending | {axis}, whole), none, changed
        for dim, entry in enumerate(entries):
            for count in range(1, (len(entry) if self.joins else min(1, len(entry))) + 1):
                axes = entry[-count:]
                size = self.ranks(axes)
                time = self.time(axes, (size - 1) * held, size - 1)
                yield (time, 1, 0), (pending, _with(entries, dim, entry[:-count])), none, none
        for axes in self.subsets(pending):
            size, left, summed = self.ranks(axes), pending - set(axes), frozenset(axes)
            pieces, messages = (size - 1) * -(-held // size), size - 1
            yield (self.time(axes, 2 * pieces, 2 * messages), 1, 0), (left, entries), summed, none
            for dim, order in itertools.product(range(len(entries)), itertools.permutations(axes)):
                after = _with(entries, dim, entries[dim] + order)
                yield (self.time(axes, (size - 1) * self.held(after), size - 1), 1, 0), (left, after), summed, none
        for counts in itertools.product(*(range(len(entry) + 1) for entry in entries)):
            rest = tuple(entry[: len(entry) - count] for entry, count in zip(entries, counts, strict=True))
            axes = tuple(cut - set(itertools.chain.from_iterable(rest)))
            if axes and (self.joins or len(axes) == 1):
                for placed in _placements(axes, len(entries)):
                    after = tuple(one + other for one, other in zip(rest, placed, strict=True))
                    received = self.held(after) - self.kept(entries, after)
                    yield (self.time(axes, received, self.ranks(axes) - 1), 1, 0), (pending, after), none, none

    def costs(self, start: State, fixed: frozenset[int], made: frozenset[int]) -> dict[State, Spent]:
        """The least cost of every layout that can be reached (Dijkstra, 1959)."""
        spent: dict[State, Spent] = {start: (0, 0, 0)}
        order = itertools.count()
        queue = [((0, 0, 0), next(order), start)]
        while queue:
            sofar, _, state = heapq.heappop(queue)
            if sofar != spent[state]:
                continue
            for cost, after in self.steps(state, fixed, made):
                now = (sofar[0] + cost[0], sofar[1] + cost[1], sofar[2] + cost[2])
                if after not in spent or now < spent[after]:
                    spent[after] = now
                    heapq.heappush(queue, (now, next(order), after))
        return spent


def chunks(length: int, ranks: int) -> list[int]:
    """The lengths of all pieces, as ``torch.chunk`` cuts."""
    piece = -(-length // ranks)
    return [max(0, min(piece, length - at * piece)) for at in range(ranks)]


def _with(entries: Entries, dim: int, entry: tuple[int, ...]) -> Entries:
    return (*entries[:dim], entry, *entries[dim + 1 :])


def _placements(axes: Collection[int], ndim: int) -> Iterator[Entries]:
    """Every way to let ``axes`` cut dims, in every order."""
    for places in itertools.product(range(ndim), repeat=len(axes)):
        cut = [[axis for axis, place in zip(axes, places, strict=True) if place == dim] for dim in range(ndim)]
        yield from itertools.product(*(itertools.permutations(one) for one in cut))
