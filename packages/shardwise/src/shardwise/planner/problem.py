"""What a search over layouts is asked, with what its steps cost. A layout here is small integers.

Axes are numbers. A state is (pending, entries): the bits of the axes over which a reduction is pending, and for every
tensor dim the axes that cut it, outermost first. Every other axis holds equal tensors. R and I are one in a state,
because they hold the same bits; which of them is meant is settled when the path is known (``route.py``).

A shard is what ``torch.chunk`` cuts: ceil(length / ranks) elements, the last ranks have fewer or none. The rank that
stands first in everything holds most, and lengths here are its lengths. What an exchange brings counts for a rank that
needs as much and has least of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from .cuts import Cuts, Entries, TakenOff, axes_of, bits_of, cuts_of, subsets
from .holdings import Holdings

State = tuple[int, Entries]
DIGITS = 12
"""Bits for the collectives of a plan, and for its local steps."""
ONE = 1 << DIGITS
MOST_WAYS = 3000
"""So many ways to arrange all axes on the dims, 4 axes on 5 dims or 5 on 3, are looked at; of more only those that lead
straight to the goal, and then a cheaper plan may exist."""
MANY_WAYS, FEW_PLACES = 50_000, 2
"""Of more ways than this, a sum is scattered to where its axes stay, or to so many dims besides."""


class CollectiveGroup(NamedTuple):
    """The ranks that a collective over some axes joins.

    ``ranks``  how many.
    ``price``  by the elements that a rank receives, what a collective costs that goes once round the ring.
    ``rates``  attoseconds per message and per element, of the axes that can be the slowest.
    """

    ranks: int
    price: Callable[[int], int]
    rates: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Problem:
    """Everything that the cost of a path between two states depends on.

    ``kinds``     the reduction that is pending over each axis; empty where none is at the start.
    ``fixed``     bits of axes that no step touches: varying ones, and those pending at both ends.
    ``made``      bits of axes that are pending at the goal and not at the start.
    ``together``  the sets of axes, as bits, over which one collective can run; None: any.
    ``weights``   attoseconds per byte over each axis; ``latencies`` attoseconds per message.
    ``most``      no tensor on the way may have more elements.
    ``holdings``  how much a rank holds where axes cut.
    ``groups``    what a collective costs over some axes.
    ``settled``   of every dim whether an axis that is where it stays is best left there, and best put there as soon as
                  it can be: since the dim is cut evenly, whatever else is done is cheaper. Not where a collective can
                  run over more axes and not over some of them: an axis may be wanted there to make up the number.
    ``homes``     for every dim the bits of the axes that cut it at the goal.
    ``wide``      the ways to arrange axes are too many to look at all.
    ``places``    on so many dims a sum is looked at whose axes do not stay there; None: on all.
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
    holdings: Holdings = field(init=False, compare=False, repr=False)
    homes: tuple[int, ...] = field(init=False, compare=False)
    settled: tuple[bool, ...] = field(init=False, compare=False)
    groups: Groups = field(init=False, compare=False, repr=False)
    wide: bool = field(init=False, compare=False)
    places: int | None = field(init=False, compare=False)
    _held: dict[int, int] = field(default_factory=dict, init=False, compare=False)
    _one_kind: dict[int, bool] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        whole = math.prod(self.sizes)
        dims = self._dims(whole)
        moved = sum(1 for axis in range(len(self.sizes)) if not self.fixed >> axis & 1)
        ways = math.prod(len(dims) + at for at in range(moved))
        wide = ways > MOST_WAYS
        # What leads straight to one goal is of no use to another.
        cuts = Cuts(dims, len(self.shape)) if wide else cuts_of(len(self.sizes), dims, len(self.shape))
        object.__setattr__(self, "cuts", cuts)
        object.__setattr__(self, "wide", wide)
        object.__setattr__(self, "places", FEW_PLACES if ways > MANY_WAYS else None)
        object.__setattr__(self, "homes", tuple(map(bits_of, self.goal[1])))
        even = all(length % whole == 0 for length in self.shape)
        object.__setattr__(self, "holdings", Holdings(self.sizes, self.shape, dims, even=even))
        each = [weight * self.itemsize for weight in self.weights]
        object.__setattr__(self, "groups", Groups(self.sizes, zip(self.latencies, each, strict=True)))
        inside = self.together is None or all(
            part.bit_count() == 1 or part in self.together for one in self.together for part in subsets(one)
        )
        object.__setattr__(self, "settled", tuple([inside and length % whole == 0 for length in self.shape]))

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
        return self.holdings.lengths[dim][bits_of(entry)]

    def local_shape(self, state: State) -> tuple[int, ...]:
        """The shape of the first rank's tensor."""
        return tuple(self.length(dim, entry) for dim, entry in enumerate(state[1]))

    def elements(self, entries: Entries) -> int:
        """How many elements the first rank holds."""
        return self.holdings.elements(tuple(map(bits_of, entries)))

    def held(self, number: int) -> int:
        """The same of the cut with that number."""
        count = self._held.get(number)
        if count is None:
            count = self._held[number] = self.holdings.elements(self.cuts.on_dims[number])
        return count

    def least_parts(self, off: TakenOff) -> list[tuple[int, int]]:
        """On every dim where axes are taken off, what every rank has at least of the block that is no longer cut."""
        return [self._least(dim, off.kept[dim], taken) for dim, taken in enumerate(off.taken) if taken]

    def _least(self, dim: int, block: tuple[int, ...], rest: tuple[int, ...]) -> tuple[int, int]:
        """The smallest piece of a first block that ``rest`` cuts, and how long the block is."""
        length, ranks = self.length(dim, block), self.ranks(rest)
        if length % ranks == 0:
            return length // ranks, length or 1
        pieces = {length}
        for axis in rest[:-1]:
            pieces = {piece for one in pieces for piece in _pieces(one, self.sizes[axis])}
        return min([_last_piece(one, self.sizes[rest[-1]]) for one in pieces]), length

    def ranks(self, axes: Iterable[int]) -> int:
        """How many ranks ``axes`` have together."""
        return math.prod([self.sizes[axis] for axis in axes])

    def group(self, bits: int) -> CollectiveGroup | None:
        """What a collective over these axes joins; None if none can run over all of them."""
        return self.groups[bits] if self.together is None or bits in self.together or not bits & bits - 1 else None

    def least_group(self, bits: int) -> CollectiveGroup | None:
        """What a collective over these axes joins, or over more; None if none can run over all of them."""
        if self.together is None or not bits & bits - 1 or any(bits & ~one == 0 for one in self.together):
            return self.groups[bits]
        return None

    def one_kind(self, bits: int) -> bool:
        """The same reduction is pending over all these axes."""
        found = self._one_kind.get(bits)
        if found is None:
            found = self._one_kind[bits] = len({self.kinds[axis] for axis in axes_of(bits)}) == 1
        return found


class Groups(dict[int, CollectiveGroup]):
    """By a set of axes, as bits, what a collective over them joins: where one of them is the slowest in messages and in
    elements, the others play no part. ``rates`` are attoseconds per message and per element over each axis."""

    def __init__(self, sizes: Sequence[int], rates: Iterable[tuple[int, int]]) -> None:
        super().__init__()
        for axis, (ranks, rate) in enumerate(zip(sizes, rates, strict=True)):
            self[1 << axis] = _joined(ranks, (rate,))

    def __missing__(self, axes: int) -> CollectiveGroup:
        one, other = self[axes & -axes], self[axes & (axes - 1)]
        found = self[axes] = _joined(one.ranks * other.ranks, (*one.rates, *other.rates))
        return found


def _joined(ranks: int, rates: tuple[tuple[int, int], ...]) -> CollectiveGroup:
    if len(rates) > 1:
        slowest = max([latency for latency, _ in rates]), max([each for _, each in rates])
        rates = (slowest,) if slowest in rates else rates
    priced = [((ranks - 1) * latency << 2 * DIGITS | ONE, each << 2 * DIGITS) for latency, each in rates]
    price = partial(_at_rate, *priced[0]) if len(priced) == 1 else partial(_slowest, priced)
    return CollectiveGroup(ranks, price, rates)


def _at_rate(start: int, each: int, elements: int) -> int:
    return start + elements * each


def _slowest(rates: Iterable[tuple[int, int]], elements: int) -> int:
    return max([start + elements * each for start, each in rates])


def _pieces(length: int, ranks: int) -> set[int]:
    """The lengths into which ``torch.chunk`` cuts."""
    piece = -(-length // ranks)
    return {max(0, min(piece, length - at * piece)) for at in (0, length // max(1, piece), ranks - 1) if at < ranks}


def _last_piece(length: int, ranks: int) -> int:
    """The shortest of them."""
    return max(0, length - (ranks - 1) * -(-length // ranks))
