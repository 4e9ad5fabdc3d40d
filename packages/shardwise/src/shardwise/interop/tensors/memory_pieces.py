"""Which elements of a memory have which type? Ranges of bytes, each with a local type, where one type cannot say it.

Gradients lie side by side in buckets that are summed piece by piece: after the first of two sums one half of the bucket
is replicate and the other one still pending.

    bucket of 6 floats, its first row summed:  [0, 12) {dp: R}  [12, 24) {dp: P}
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shardwise.types.placement import UNKNOWN, Placement, R, V
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..torch_compat import no_torch_function, storage_of
from .element_orders import UNORDERED, Dims, Order, are_alike, by_memory, is_in_a_row, listed, steps
from .own_references import OwnReference

MOST_RUNS = 1 << 14
"""A view of more separate ranges than this is taken for all that lies between its first element and its last."""
_FEW_RUNS = 1 << 8
"""A view whose elements are in another order than its memory is taken apart into so many ranges at most."""


@dataclass(frozen=True, slots=True)
class Content:
    """Elements of the gradient of one parameter, from element ``first`` on, or from place ``first`` of an ``order``."""

    owner: OwnReference
    first: int
    order: Order | None = None

    def after(self, elements: int) -> Content:
        return replace(self, first=self.first + elements)

    def is_same(self, other: Content | None) -> bool:
        """True if both go on with the same elements."""
        if other is None or self.first != other.first or self.owner() is not other.owner():
            return False
        return self.order == other.order and self.order is not UNORDERED

    def seen_by(self, first: int, dims: Dims, count: int) -> Content:
        """The content of a view of this that begins ``first`` elements on; plain where its elements are in a row."""
        order = steps(self.first + first, dims, self.order)
        start = order.at(0) if count else 0
        if order is not UNORDERED and is_in_a_row(order, 0, start, count):
            return Content(self.owner, start)
        return Content(self.owner, 0, order)

    def at_places(self, places: torch.Tensor) -> Content:
        """The content of elements that were taken from these places of this one by one."""
        order = listed(places + self.first, self.order)
        start = order.at(0)
        in_a_row = order is not UNORDERED and is_in_a_row(order, 0, start, len(places))
        return Content(self.owner, start) if in_a_row else Content(self.owner, 0, order)

    def starts_at(self, element: int, count: int) -> bool:
        """True if these are the ``count`` elements from ``element`` on, as far as one can tell."""
        return is_in_a_row(self.order, self.first, element, count)

    def agrees(self, other: Content, count: int) -> bool:
        """True if the next ``count`` elements of both are the same ones, as far as one can tell."""
        if self.owner() is not other.owner():
            return False
        return self.is_same(other) or are_alike(self.order, self.first, other.order, other.first, count)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``start`` to ``stop`` hold elements of ``itemsize`` bytes and this type.

    ``content``  the gradient that they are, as far as that is known.
    """

    start: int
    stop: int
    type: TensorType
    origin: Any = None
    content: Content | None = None
    itemsize: int = 1

    def within(self, start: int, stop: int) -> Piece:
        """The part of this piece between two bytes."""
        start, stop = max(start, self.start), min(stop, self.stop)
        content = self.content
        if content is not None and start > self.start:
            content = content.after((start - self.start) // self.itemsize)
        return replace(self, start=start, stop=stop, content=content)

    def continues(self, before: Piece) -> bool:
        """True if both are one piece."""
        if before.stop != self.start or before.type is not self.type or before.origin is not self.origin:
            return False
        if self.content is None or before.content is None:
            return self.content is before.content
        return before.content.after((self.start - before.start) // before.itemsize).is_same(self.content)


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes of a tensor in its memory, as ranges.

    ``ordered``  the ranges, one after the other, are the elements of the tensor in their order.
    """

    ranges: tuple[tuple[int, int], ...]
    ordered: bool

    def part(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges of the tensor's own bytes ``start`` to ``stop``, counted along it."""
        at = 0
        for low, high in self.ranges:
            first, last = max(start, at), min(stop, at + high - low)
            if first < last:
                yield low + first - at, low + last - at
            at += high - low


def region_of(x: torch.Tensor) -> Region | None:
    """Where ``x`` lies in its memory; None for what has none. Elements that several indices share count once."""
    with no_torch_function():
        if storage_of(x) is None:
            return None
        item = x.element_size()
        first = int(x.storage_offset()) * item
        dims = [(int(n), int(step)) for n, step in zip(x.shape, x.stride(), strict=True) if n != 1 and step != 0]
    if any(size == 0 for size, _ in dims):
        return Region((), True)
    ordered = dims == sorted(dims, key=lambda dim: -dim[1]) and math.prod(s for s, _ in dims) == x.numel()
    dims.sort(key=lambda dim: -dim[1])
    block = 1
    while dims and dims[-1][1] == block:
        block *= dims.pop()[0]
    if math.prod(size for size, _ in dims) > MOST_RUNS:
        last = sum((size - 1) * stride for size, stride in dims)
        return Region(((first, first + (last + block) * item),), False)
    starts = (sum(at) for at in itertools.product(*([n * stride for n in range(size)] for size, stride in dims)))
    return Region(tuple((first + at * item, first + (at + block) * item) for at in starts), ordered)


def runs_of(x: torch.Tensor) -> Region | None:
    """The memory of ``x``, one range after the other in the order of its elements; None if these are too many."""
    with no_torch_function():
        item, first = x.element_size(), int(x.storage_offset()) * x.element_size()
        dims = [(int(n), int(step)) for n, step in zip(x.shape, x.stride(), strict=True) if n != 1]
    block = 1
    while dims and dims[-1][1] == block:
        block *= dims.pop()[0]
    if math.prod(size for size, _ in dims) > _FEW_RUNS:
        return None
    starts = (sum(at) for at in itertools.product(*([n * stride for n in range(size)] for size, stride in dims)))
    return Region(tuple((first + at * item, first + (at + block) * item) for at in starts), True)


class MemoryPieces:
    """The pieces of one memory, in its order and without gaps."""

    __slots__ = ("pieces",)

    def __init__(self, whole: Piece) -> None:
        self.pieces = [whole]

    def of(self, ranges: Iterable[tuple[int, int]]) -> list[Piece]:
        """What lies in these ranges, range by range."""
        return [
            piece.within(start, stop)
            for start, stop in ranges
            for piece in self.pieces
            if piece.start < stop and start < piece.stop
        ]

    def put(self, new: Sequence[Piece]) -> None:
        """Replace what lies where the new pieces lie."""
        for piece in new:
            if piece.start >= piece.stop:
                continue
            kept: list[Piece] = []
            for old in self.pieces:
                if old.stop <= piece.start or piece.stop <= old.start:
                    kept.append(old)
                    continue
                if old.start < piece.start:
                    kept.append(old.within(old.start, piece.start))
                if piece.stop < old.stop:
                    kept.append(old.within(piece.stop, old.stop))
            kept.append(piece)
            kept.sort(key=lambda each: each.start)
            self.pieces = kept
        self.pieces = joined_neighbours(self.pieces)


def joined_neighbours(pieces: Iterable[Piece]) -> list[Piece]:
    """The same with fewer pieces, where one continues another."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and piece.continues(joined[-1]):
            joined[-1] = replace(joined[-1], stop=piece.stop)
        else:
            joined.append(piece)
    return joined


def joined_type(types: Iterable[TensorType]) -> TensorType:
    """The local type of a tensor with pieces of these types: along an axis on which they contradict, it is unknown.

    Constants between others are any of them.
    """
    distinct = list(dict.fromkeys(types))
    if len(distinct) == 1:
        return distinct[0]
    known = [type for type in distinct if not type.ground.is_constant and type.ground is not Ground.EMPTY]
    if not known:
        return next((type for type in distinct if type.ground is Ground.CONSTANT), distinct[0])
    if any(type is UNKNOWN_TYPE or type is UNTYPED for type in known):
        return UNKNOWN_TYPE
    axes = [axis for axis in known[0].axes if all(axis in type for type in known)]
    exponents = {axis: {type.exponent(axis) for type in known} for axis in axes}
    scale = {axis: next(iter(found)) if len(found) == 1 else None for axis, found in exponents.items()}
    return TensorType.of({axis: joined_placement([type.get(axis) for type in known]) for axis in axes}, scale=scale)


def joined_placement(places: Sequence[Placement]) -> Placement:
    """What values of these placements are when they lie in one tensor."""
    first = places[0]
    if all(place is first for place in places):
        return first
    if all(place.is_equal for place in places):
        return R
    return V if all(place.is_varying or place.is_equal for place in places) else UNKNOWN


def laid_into(x: torch.Tensor, pieces: Sequence[Piece]) -> list[Piece]:
    """``pieces``, which lie one after the other in the order of a tensor's elements, as the pieces of memory of ``x``.

    It may have elements of another size.
    """
    region = region_of(x)
    assert region is not None, "only what has memory is written into"
    if not region.ordered and len(region.ranges) == 1 and len(pieces) == 1:
        return [_turned(x, region.ranges[0], pieces[0])]
    with no_torch_function():
        item = x.element_size()
    in_turn = region if region.ordered else runs_of(x)
    if in_turn is None:
        return _somewhere(region, pieces, item)
    laid, at = [], 0
    for piece in pieces:
        length = (piece.stop - piece.start) // piece.itemsize * item
        done = 0
        for start, stop in in_turn.part(at, at + length):
            content = piece.content if piece.content is None else piece.content.after(done // item)
            laid.append(Piece(start, stop, piece.type, piece.origin, content, item))
            done += stop - start
        at += length
    return laid


def _somewhere(region: Region, pieces: Sequence[Piece], item: int) -> list[Piece]:
    """The pieces of memory if nobody can say which of these lies where."""
    type, known = joined_type(piece.type for piece in pieces), [p.content for p in pieces if p.content is not None]
    content, origin = replace(known[0], order=UNORDERED) if known else None, pieces[0].origin
    return [Piece(start, stop, type, origin, content, item) for start, stop in region.ranges]


def _turned(x: torch.Tensor, memory: tuple[int, int], piece: Piece) -> Piece:
    """All elements of ``x``, which are this piece, as its ``memory`` has them, which has them in another order."""
    with no_torch_function():
        item, count = x.element_size(), x.numel()
        dims, dense = by_memory(x.shape, x.stride())
    content = piece.content
    if content is not None:
        whole = dense and (memory[1] - memory[0]) // item == count
        content = content.seen_by(0, dims, count) if whole else replace(content, order=UNORDERED)
    return Piece(*memory, piece.type, piece.origin, content, item)
