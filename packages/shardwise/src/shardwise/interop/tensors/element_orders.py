"""In which order do elements lie that were copied out of another tensor? By a step per dim, or by a table.

    x of 4 x 3, x.t().contiguous() in a row:    elements 0 3 6 9  1 4 7 10  2 5 8 11 of x
    as steps:                                   3 times 1, in each 4 times 3

What is asked of an order is asked of some elements only, so that it costs the same whatever the size of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

Dims = tuple[tuple[int, int], ...]
"""The size of each dim and the step from one of its elements to the next, outermost first."""

_ENDS = 48
"""So many of the first and of the last elements are looked at."""
_BETWEEN = 97
"""Into so many stretches what lies between is cut, of which one element each is looked at."""
_DEEPEST = 32


class Order(Protocol):
    """Which element stands at a place; ``depth``: of how many copies, one of the other, that is told."""

    @property
    def depth(self) -> int: ...

    def at(self, place: int) -> int: ...


@dataclass(frozen=True, slots=True)
class BySteps:
    """Element ``place`` of these dims in a row is element ``first`` and a step per dim on of ``inner``."""

    first: int
    dims: Dims
    inner: Order | None = None
    depth: int = 1

    def at(self, place: int) -> int:
        position = self.first
        for size, step in reversed(self.dims):
            place, index = divmod(place, size)
            position += index * step
        return position if self.inner is None else self.inner.at(position)


@dataclass(frozen=True, slots=True, eq=False)
class ByTable:
    """The element at each place, after which ``inner`` is asked for it."""

    positions: torch.Tensor
    inner: Order | None = None
    depth: int = 1

    def at(self, place: int) -> int:
        position = int(self.positions[place])
        return position if self.inner is None else self.inner.at(position)


@dataclass(frozen=True, slots=True)
class _Lost:
    depth: int = 0

    def at(self, place: int) -> int:
        return -1


UNORDERED = _Lost()
"""These are the elements, and nobody knows which one stands where."""


def steps(first: int, dims: Dims, inner: Order | None) -> Order:
    """The order of a view of something that has the order ``inner`` itself; None: its own."""
    depth = 1 if inner is None else inner.depth + 1
    return UNORDERED if inner is UNORDERED or depth > _DEEPEST else BySteps(first, dims, inner, depth)


def listed(positions: torch.Tensor, inner: Order | None) -> Order:
    """The order of what was taken element by element from something that has the order ``inner``."""
    depth = 1 if inner is None else inner.depth + 1
    return UNORDERED if inner is UNORDERED or depth > _DEEPEST else ByTable(positions, inner, depth)


def is_in_a_row(order: Order | None, first: int, start: int, count: int) -> bool:
    """True if the ``count`` elements from place ``first`` on are ``start``, ``start + 1`` and so on."""
    return are_alike(order, first, None, start, count)


def are_alike(one: Order | None, first: int, other: Order | None, start: int, count: int) -> bool:
    """True if the next ``count`` elements from place ``first`` of ``one`` and ``start`` of ``other`` are the same."""
    if one is None and other is None:
        return first == start
    if UNORDERED in (one, other):
        return False
    return all(_at(one, first + place) == _at(other, start + place) for place in _places(count))


def _at(order: Order | None, place: int) -> int:
    return place if order is None else order.at(place)


def _places(count: int) -> Iterator[int]:
    """All places of a few elements; of many the ends, and some between that no step meets alike."""
    if count <= 2 * _ENDS + _BETWEEN:
        yield from range(count)
        return
    yield from range(_ENDS)
    yield from range(count - _ENDS, count)
    stretch = count // _BETWEEN
    for number in range(_BETWEEN):
        yield number * stretch + (number * number * 31) % stretch


def by_memory(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Dims, bool]:
    """The steps along a tensor's own elements of one who goes through its memory, and whether that has no gaps."""
    own, step = [], 1
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        if size != 1:
            own.append((stride, size, step))
        step *= size
    own.sort(key=lambda dim: -dim[0])
    dense = all(stride == math.prod(size for _, size, _ in own[at + 1 :]) for at, (stride, _, _) in enumerate(own))
    return tuple((size, step) for _, size, step in own), dense
