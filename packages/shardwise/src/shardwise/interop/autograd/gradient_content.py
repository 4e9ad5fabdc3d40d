"""Which elements of which gradients are in a tensor? Known of gradients, and of what they were copied into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..tensors.dtensors import is_dtensor
from ..tensors.memory_pieces import Content, Piece, region_of
from ..tensors.own_references import OwnReference
from ..tensors.tagging import local_type, pieces_of, tag_of, type_of
from ..torch_compat import no_torch_function, same_memory
from .gradient_origin import beginning


def contents_of(x: torch.Tensor) -> list[Piece]:
    """The pieces of ``x`` in the order of its elements, with the gradients that they are."""
    tag, region = tag_of(x), region_of(x)
    with no_torch_function():
        item, count = x.element_size(), x.numel()
    origin = None if tag is None else tag.origin
    if region is None or not region.ordered:
        return [Piece(0, count * item, local_type(type_of(x)), origin, None, item)]
    pieces: Sequence[Piece] = pieces_of(x, tag) or [
        Piece(start, stop, local_type(type_of(x)), origin, None, item) for start, stop in region.ranges
    ]
    return [piece if piece.content is not None else replace(piece, content=_own(x, piece)) for piece in pieces]


def _own(x: torch.Tensor, piece: Piece) -> Content | None:
    """The content of a piece that lies in a gradient itself."""
    origin = beginning(piece.origin)
    parameter = None if origin is None else origin.parameter
    if parameter is None or is_dtensor(parameter):
        return None
    with no_torch_function():
        gradient = parameter.grad if parameter.is_leaf or parameter.retains_grad else None
        if gradient is None or not same_memory(gradient, x):
            return None
    region = region_of(gradient)
    if region is None or not region.ordered or len(region.ranges) != 1:
        return None
    (start, stop), item = region.ranges[0], gradient.element_size()
    if not start <= piece.start <= piece.stop <= stop or item != piece.itemsize:
        return None
    return Content(OwnReference(parameter), (piece.start - start) // item)


def is_foreign(pieces: Sequence[Piece], owner: torch.Tensor) -> bool:
    """True if, in a gradient of ``owner`` with these contents, some elements are known to be others than its own."""
    at = 0
    for piece in pieces:
        if piece.content is not None and (piece.content.owner() is not owner or piece.content.first != at):
            return True
        at += (piece.stop - piece.start) // piece.itemsize
    return False
