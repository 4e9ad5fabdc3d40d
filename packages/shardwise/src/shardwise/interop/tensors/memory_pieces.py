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
from .own_references import OwnReference

MOST_RUNS = 1 << 14
"""A view of more separate ranges than this is taken for all that lies between its first element and its last."""


@dataclass(frozen=True, slots=True)
class Content:
    """Elements of the gradient of one parameter, from element ``first`` on."""

    owner: OwnReference
    first: int

    def after(self, elements: int) -> Content:
        return Content(self.owner, self.first + elements)

    def is_same(self, other: Content | None) -> bool:
        return other is not None and self.first == other.first and self.owner() is other.owner()


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
        self.pieces = _joined_neighbours(self.pieces)


def _joined_neighbours(pieces: Iterable[Piece]) -> list[Piece]:
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
    with no_torch_function():
        item = x.element_size()
    laid, at = [], 0
    for piece in pieces:
        length = (piece.stop - piece.start) // piece.itemsize * item
        done = 0
        for start, stop in region.part(at, at + length):
            content = piece.content if piece.content is None else piece.content.after(done // item)
            laid.append(Piece(start, stop, piece.type, piece.origin, content, item))
            done += stop - start
        at += length
    return laid
