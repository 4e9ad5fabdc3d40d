"""Which elements of which gradients are in a tensor? Known of gradients, and of what they were copied into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..tensors.dtensors import is_dtensor
from ..tensors.element_orders import UNORDERED, by_memory
from ..tensors.memory_pieces import Content, Piece, Region, joined_neighbours, laid_into, region_of, runs_of
from ..tensors.own_references import OwnReference
from ..tensors.tagging import Tag, local_type, tag_of, type_of
from ..torch_compat import no_torch_function, same_memory
from .gradient_origin import beginning


def contents_of(x: torch.Tensor) -> list[Piece]:
    """The pieces of ``x`` in the order of its elements, with the gradients that they are."""
    tag, region = tag_of(x), region_of(x)
    if region is not None and region.ordered:
        return _in(x, tag, region)
    with no_torch_function():
        item, count = x.element_size(), x.numel()
    origin = None if tag is None else tag.origin
    whole = Piece(0, count * item, local_type(type_of(x)), origin, None, item)
    if region is None or tag is None:
        return [whole]
    around = _in(x, tag, Region(((min(region.ranges)[0], max(region.ranges)[1]),), True))
    if all(piece.content is None for piece in around):
        return [whole]
    with no_torch_function():
        dims, first = tuple(zip(x.shape, x.stride(), strict=True)), int(x.storage_offset())
        repeated = any(stride == 0 and size > 1 for size, stride in dims)
    one = around[0]
    if len(around) == 1 and one.content is not None and one.itemsize == item:
        content = one.content.seen_by(first - one.start // item, dims, count)
        return [replace(one, start=0, stop=count * item, content=content)]
    runs = None if repeated else runs_of(x)
    if runs is not None:
        return _in(x, tag, runs)
    known = next(piece.content for piece in around if piece.content is not None)
    return [replace(whole, content=replace(known, order=UNORDERED))]


def _in(x: torch.Tensor, tag: Tag | None, region: Region) -> list[Piece]:
    """What lies in these ranges of the memory of ``x``, one after the other."""
    with no_torch_function():
        item = x.element_size()
    origin = None if tag is None else tag.origin
    known = None if tag is None else tag.pieces
    pieces: Sequence[Piece] = [] if known is None else known.of(region.ranges)
    if not pieces:
        type = local_type(type_of(x))
        pieces = [Piece(start, stop, type, origin, None, item) for start, stop in region.ranges]
    told = [piece if piece.content is not None else replace(piece, content=_own(x, piece)) for piece in pieces]
    return told if len(told) < 2 else joined_neighbours(told)


def _own(x: torch.Tensor, piece: Piece) -> Content | None:
    """The content of a piece that lies in a gradient itself."""
    origin = beginning(piece.origin)
    parameter = None if origin is None else origin.parameter
    return None if parameter is None else _place_in(parameter, x, piece)


def _place_in(parameter: torch.Tensor, x: torch.Tensor, piece: Piece) -> Content | None:
    """What a piece of the memory of ``x`` is if it lies in the gradient of ``parameter``."""
    if is_dtensor(parameter):
        return None
    with no_torch_function():
        gradient = parameter.grad if parameter.is_leaf or parameter.retains_grad else None
        if gradient is None or not same_memory(gradient, x):
            return None
        count, dims = gradient.numel(), by_memory(gradient.shape, gradient.stride())[0]
    region = region_of(gradient)
    if region is None or len(region.ranges) != 1:
        return None
    (start, stop), item = region.ranges[0], gradient.element_size()
    if not start <= piece.start <= piece.stop <= stop or item != piece.itemsize or (stop - start) // item != count:
        return None
    own = Content(OwnReference(parameter), 0)
    return (own if region.ordered else own.seen_by(0, dims, count)).after((piece.start - start) // item)


def is_foreign(x: torch.Tensor, pieces: Sequence[Piece], owner: torch.Tensor) -> bool:
    """True if, in ``x``, which is the gradient of ``owner`` or a view of all of it, and consists of these pieces, some
    elements are known to be others than those whose place they have.
    """
    for piece in laid_into(x, pieces) if pieces else ():
        if piece.content is not None:
            place = _place_in(owner, x, piece)
            if place is None or not piece.content.agrees(place, (piece.stop - piece.start) // piece.itemsize):
                return True
    return False
