"""How axes can cut the dims of a tensor, as numbers, and which cuts lead to which: no length and no rank plays a part.

A search meets few cuts and many ways between them, so each cut is one small number, and what leads on from it is listed
once for all moves of tensors with as many axes and dims.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

Entries = tuple[tuple[int, ...], ...]
"""For every tensor dim the axes that cut it, outermost first. Axes are numbers."""

Remnant = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On a dim, of a block that axes cut, what is left to a rank when more axes cut it: of these it may stand anywhere."""


class Rearrangement(NamedTuple):
    """What an exchange over ``axes`` leads to: they are taken off, and cut the same or other dims.

    ``bare``     the cuts of which some rank has nothing of its new block.
    ``sharing``  the others, each with the remnants of what every rank has of its new block, one on every dim on which
                 axes are taken off.
    """

    axes: tuple[int, ...]
    bare: tuple[int, ...]
    sharing: tuple[tuple[int, tuple[int, ...]], ...]


class Cuts:
    """The cuts of ``dims``, of ``ndim`` dims; numbered as they are met.

    Example:
        >>> cuts = Cuts((0, 1), 2)
        >>> whole = cuts.number(((), ()))
        >>> whole, cuts.inside(whole, (0,)), [cuts.entries[number] for number in cuts.inside(whole, (0,))]
        (0, (1, 2), [((0,), ()), ((), (0,))])
    """

    def __init__(self, dims: tuple[int, ...], ndim: int) -> None:
        self.dims, self.ndim = dims, ndim
        self._lock = threading.Lock()
        self.entries: list[Entries] = []
        self.bits: list[int] = []
        self.remnants: list[Remnant] = []
        self._numbers: dict[Entries, int] = {}
        self._remnants: dict[Remnant, int] = {}
        self._inside: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self._gathers: dict[int, tuple[tuple[tuple[int, ...], int], ...]] = {}
        self._exchanges: dict[int, tuple[Rearrangement, ...]] = {}

    def number(self, entries: Entries) -> int:
        """The number of a cut."""
        number = self._numbers.get(entries)
        if number is None:
            with self._lock:  # the cuts of all threads have one numbering
                number = self._numbers.get(entries, len(self.entries))
                if number == len(self.entries):
                    self.entries.append(entries)
                    self.bits.append(sum(map(bits_of, entries)))
                    self._numbers[entries] = number
        return number

    def inside(self, number: int, order: tuple[int, ...]) -> tuple[int, ...]:
        """The cuts in which axes in this order cut one dim inside all that cut it: one cut for each dim."""
        known = self._inside.get((number, order))
        if known is None:
            entries = self.entries[number]
            known = tuple(self.number(with_entry(entries, dim, entries[dim] + order)) for dim in self.dims)
            self._inside[number, order] = known
        return known

    def gathers(self, number: int) -> tuple[tuple[tuple[int, ...], int], ...]:
        """The innermost axes of one dim no longer cut: the axes, and the cut."""
        known = self._gathers.get(number)
        if known is None:
            entries = self.entries[number]
            known = self._gathers[number] = tuple(
                (entry[-count:], self.number(with_entry(entries, dim, entry[:-count])))
                for dim, entry in enumerate(entries)
                for count in range(1, len(entry) + 1)
            )
        return known

    def exchanges(self, number: int) -> tuple[Rearrangement, ...]:
        """Every exchange that starts at a cut, one for each set of axes that can be taken off."""
        known = self._exchanges.get(number)
        if known is None:
            known = self._exchanges[number] = tuple(self._exchanged(self.entries[number]))
        return known

    def _remnant(self, dim: int, block: tuple[int, ...], rest: tuple[int, ...]) -> int:
        remnant = dim, block, rest
        number = self._remnants.get(remnant)
        if number is None:
            with self._lock:
                number = self._remnants.get(remnant, len(self.remnants))
                if number == len(self.remnants):
                    self.remnants.append(remnant)
                    self._remnants[remnant] = number
        return number

    def _exchanged(self, entries: Entries) -> Iterator[Rearrangement]:
        """An axis that stays outermost of those taken off has not moved: that is an exchange over fewer axes, and left
        out."""
        for axes, kept, taken in _taken_off(entries):
            bare, sharing = [], []
            for placed in _placements(axes, self.dims, self.ndim):
                pairs = [(old, new) for old, new in zip(taken, placed, strict=True) if old and new]
                if any(old[0] == new[0] for old, new in pairs):
                    continue
                after = tuple([one + other for one, other in zip(kept, placed, strict=True)])
                if pairs:
                    bare.append(self.number(after))
                else:
                    both = enumerate(zip(entries, after, strict=True))
                    rests = [(dim, new, old[len(new) :]) for dim, (old, new) in both]
                    remnants = tuple([self._remnant(*rest) for rest in rests if rest[2]])
                    sharing.append((self.number(after), remnants))
            yield Rearrangement(axes, tuple(bare), tuple(sharing))

    def straight(self, number: int, goal: Entries) -> list[Rearrangement]:
        """One exchange for each set of axes to take off: what ``goal`` has on a dim goes there, the rest stays."""
        found = []
        entries = self.entries[number]
        home = {axis: dim for dim, entry in enumerate(goal) for axis in entry}
        order = {axis: at for entry in goal for at, axis in enumerate(entry)}
        for axes, kept, taken in _taken_off(entries):
            placed: list[list[int]] = [[] for _ in entries]
            for dim, entry in enumerate(taken):
                for axis in entry:
                    placed[home.get(axis, dim)].append(axis)
            after = tuple(
                one + tuple(sorted(other, key=lambda axis: order.get(axis, len(order))))
                for one, other in zip(kept, placed, strict=True)
            )
            if after != entries:
                found.append(Rearrangement(axes, (self.number(after),), ()))
        return found


@lru_cache(maxsize=32)
def cuts_of(axes: int, dims: tuple[int, ...], ndim: int) -> Cuts:
    """The cuts that all moves with as many ``axes`` and dims share."""
    return Cuts(dims, ndim)


def bits_of(axes: tuple[int, ...]) -> int:
    """A set of axes as bits."""
    return sum([1 << axis for axis in axes])


def with_entry(entries: Entries, dim: int, entry: tuple[int, ...]) -> Entries:
    """``entries`` with another one of ``dim``."""
    return (*entries[:dim], entry, *entries[dim + 1 :])


def _taken_off(entries: Entries) -> Iterator[tuple[tuple[int, ...], Entries, Entries]]:
    """Every way to take innermost axes of some dims off: the axes, what still cuts every dim, and what did."""
    for counts in itertools.product(*(range(len(entry) + 1) for entry in entries)):
        taken = tuple([entry[len(entry) - count :] for entry, count in zip(entries, counts, strict=True)])
        axes = tuple(sorted(itertools.chain.from_iterable(taken)))
        if axes:
            yield (
                axes,
                tuple([entry[: len(entry) - count] for entry, count in zip(entries, counts, strict=True)]),
                taken,
            )


@lru_cache(maxsize=4096)
def _placements(axes: tuple[int, ...], dims: tuple[int, ...], ndim: int) -> tuple[Entries, ...]:
    """All ways to let every one of ``axes`` cut one of ``dims``, in any order."""
    found: list[Entries] = [((),) * ndim]
    for axis in axes:
        found = [
            with_entry(entries, dim, (*entries[dim][:at], axis, *entries[dim][at:]))
            for entries in found
            for dim in dims
            for at in range(len(entries[dim]) + 1)
        ]
    return tuple(found)
