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


class TakenOff(NamedTuple):
    """Innermost axes of some dims that no longer cut them.

    ``bits``             the axes as bits.
    ``kept``, ``taken``  for every dim the axes that still cut it, and those that did.
    ``on_dims``          ``kept`` as bits.
    """

    axes: tuple[int, ...]
    bits: int
    kept: Entries
    taken: Entries
    on_dims: tuple[int, ...]


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
        self.on_dims: list[tuple[int, ...]] = []
        self.bits: list[int] = []
        self._numbers: dict[Entries, int] = {}
        self._inside: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self._gathers: dict[int, tuple[tuple[tuple[int, ...], int, int], ...]] = {}
        self._removable: dict[int, tuple[int, ...]] = {}

    def number(self, entries: Entries) -> int:
        """The number of a cut."""
        number = self._numbers.get(entries)
        if number is None:
            with self._lock:  # the cuts of all threads have one numbering
                number = self._numbers.get(entries, len(self.entries))
                if number == len(self.entries):
                    self.entries.append(entries)
                    self.on_dims.append(on_dims := tuple(map(bits_of, entries)))
                    self.bits.append(sum(on_dims))
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

    def gathers(self, number: int) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        """The innermost axes of one dim no longer cut: the axes, their bits, and the cut."""
        known = self._gathers.get(number)
        if known is None:
            entries = self.entries[number]
            known = self._gathers[number] = tuple(
                (entry[-count:], bits_of(entry[-count:]), self.number(with_entry(entries, dim, entry[:-count])))
                for dim, entry in enumerate(entries)
                for count in range(1, len(entry) + 1)
            )
        return known

    def wanted(self, number: int, goal: Entries) -> tuple[tuple[int, int, int], ...]:
        """The axes that ``goal`` has next on a dim where all others stand as there: the axis, the dim, and the cut."""
        entries, cut = self.entries[number], self.bits[number]
        return tuple(
            [
                (axis, dim, self.number(with_entry(entries, dim, (*entry, axis))))
                for dim, (entry, aim) in enumerate(zip(entries, goal, strict=True))
                if len(entry) < len(aim) and entry == aim[: len(entry)] and not cut >> (axis := aim[len(entry)]) & 1
            ]
        )

    def removable(self, number: int) -> tuple[int, ...]:
        """The sets of axes that can be taken off from a cut together, as bits: innermost ones of some dims."""
        known = self._removable.get(number)
        if known is None:
            found = [0]
            for entry in self.entries[number]:
                if entry:
                    found += [one | bits_of(entry[at:]) for one in found for at in range(len(entry))]
            known = self._removable[number] = tuple(found[1:])
        return known

    def taken_off(self, number: int, bits: int) -> TakenOff:
        """What is left of a cut when these axes are taken off from it."""
        ways = [_without(entry, bits) for entry in self.entries[number]]
        kept, taken, on_dims = zip(*ways, strict=True)
        return TakenOff(axes_of(bits), bits, kept, taken, on_dims)

    def straight(self, number: int, off: TakenOff, goal: Entries) -> int | None:
        """One cut by the axes taken off, if it is new: what ``goal`` has on a dim goes there, the rest stays."""
        home = {axis: dim for dim, entry in enumerate(goal) for axis in entry}
        order = {axis: at for entry in goal for at, axis in enumerate(entry)}
        placed: list[list[int]] = [[] for _ in goal]
        for dim, entry in enumerate(off.taken):
            for axis in entry:
                placed[home.get(axis, dim)].append(axis)
        after = tuple(
            one + tuple(sorted(other, key=lambda axis: order.get(axis, len(order))))
            for one, other in zip(off.kept, placed, strict=True)
        )
        return self.number(after) if after != self.entries[number] else None


@lru_cache(maxsize=32)
def cuts_of(axes: int, dims: tuple[int, ...], ndim: int) -> Cuts:
    """The cuts that all moves with as many ``axes`` and dims share."""
    return Cuts(dims, ndim)


def forget() -> None:
    """Let the next search find its cuts anew, as in a new process."""
    cuts_of.cache_clear()
    placements.cache_clear()


@lru_cache(maxsize=4096)
def bits_of(axes: tuple[int, ...]) -> int:
    """A set of axes as bits."""
    return sum([1 << axis for axis in axes])


def subsets(axes: int) -> Iterator[int]:
    """All of a set of axes as bits, but the empty one."""
    chosen = axes
    while chosen:
        yield chosen
        chosen = (chosen - 1) & axes


@lru_cache(maxsize=4096)
def parts_of(axes: int) -> tuple[int, ...]:
    """Every set of some of ``axes``, as bits, none first."""
    return (0, *subsets(axes))


def with_entry(entries: Entries, dim: int, entry: tuple[int, ...]) -> Entries:
    """``entries`` with another one of ``dim``."""
    return (*entries[:dim], entry, *entries[dim + 1 :])


@lru_cache(maxsize=4096)
def _without(entry: tuple[int, ...], bits: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """What is kept when the innermost axes among ``bits`` are taken off; what is not; and what is kept as bits."""
    at = len(entry)
    while at and bits >> entry[at - 1] & 1:
        at -= 1
    return entry[:at], entry[at:], bits_of(entry[:at])


@lru_cache(maxsize=4096)
def axes_of(bits: int) -> tuple[int, ...]:
    """A set of axes in their order."""
    return tuple([axis for axis in range(bits.bit_length()) if bits >> axis & 1])


def arrivals(off: TakenOff, goal: Entries) -> Iterator[Entries]:
    """Of the axes taken off, which of them come to cut where they do at the goal, with all that stand outside them.

    An axis that was outermost of those taken off its dim does not come to where it was: that is an exchange over fewer
    axes, and left out.
    """
    none: list[tuple[int, ...]] = [()]
    ways, bits = [], off.bits
    for kept, taken, wanted in zip(off.kept, off.taken, goal, strict=True):
        at = end = len(kept)
        if (
            end < len(wanted)
            and bits >> wanted[end] & 1
            and kept == wanted[:end]
            and taken[:1] != wanted[end : end + 1]
        ):
            while end < len(wanted) and bits >> wanted[end] & 1:
                end += 1
            ways.append([wanted[at : at + count] for count in range(end - at + 1)])
        else:
            ways.append(none)
    return itertools.product(*ways)


@lru_cache(maxsize=4096)
def placements(axes: tuple[int, ...], dims: tuple[int, ...], ndim: int) -> dict[tuple[int | None, ...], list[Entries]]:
    """All ways to let every one of ``axes`` cut one of ``dims``, in any order; by the outermost axis of every dim."""
    found: list[Entries] = [((),) * ndim]
    for axis in axes:
        found = [
            with_entry(entries, dim, (*entries[dim][:at], axis, *entries[dim][at:]))
            for entries in found
            for dim in dims
            for at in range(len(entries[dim]) + 1)
        ]
    by_first: dict[tuple[int | None, ...], list[Entries]] = {}
    for entries in found:
        by_first.setdefault(tuple([entry[0] if entry else None for entry in entries]), []).append(entries)
    return by_first
