"""What may be written into a gradient? More than into other tensors: whoever overwrites all of it says what it is now.

Gradients are zeroed, replaced by pieces of a bucket that has been summed, and gathered in buffers, whose elements then
have the types and the contents of what was written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from shardwise.interop.autograd.gradient_content import contents_of
from shardwise.interop.autograd.gradient_origin import beginning, gradient_origin, owner_of
from shardwise.interop.tensors.memory_pieces import Content, Piece
from shardwise.interop.tensors.tagging import Provenance, is_pieced, tag_of, type_of
from shardwise.interop.torch_compat import no_torch_function, storage_of
from shardwise.types.placement import UNKNOWN
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..state.session import CheckSession

OVERWRITING = ("copy_", "zero_", "fill_")


def overwritten(
    op: str, tensor: torch.Tensor, result: TensorType, operands: Sequence[tuple[str, object]] = ()
) -> TensorType | None:
    """The type of ``tensor`` after ``op`` has written ``result`` over it; None where no gradient takes part.

    ``operands``  what is written, by name: a gradient may be put into any part of a buffer.
    """
    if op not in OVERWRITING or tensor.requires_grad:
        return None
    tag = tag_of(tensor)
    if tag is None or gradient_origin(tag) is None:
        gathered = is_part(tensor) and any(gradient_origin(tag_of(value)) is not None for _, value in operands)
        return result if gathered else None
    if result.ground.is_constant:
        return result
    if not result.axes or result.ground is not Ground.ABSENT:
        return UNKNOWN_TYPE
    return into_gradient(owner_of(tensor), tag.type_for(tensor), result)


def summed_by_hand(session: CheckSession, tensor: torch.Tensor, result: TensorType) -> TensorType | None:
    """The type of a gradient that takes in what neighbours have sent of theirs, as in a ring; None for other writes.

    Nothing is known of what has arrived, so whether the sum is complete now is known no more either.
    """
    if not session.addends_sent or tensor.requires_grad or gradient_origin(tag_of(tensor)) is None:
        return None
    before = type_of(tensor)
    arrived = [axis for axis in session.addends_sent if axis in before and result.get(axis) is UNKNOWN]
    return before.with_placements(dict.fromkeys(arrived, UNKNOWN)) if arrived else None


def into_gradient(parameter: torch.Tensor | None, before: TensorType, written: TensorType) -> TensorType:
    """The type of a gradient of type ``before`` that was overwritten by a value of type ``written``.

    What comes out of a bucket in which gradients of several types lay side by side is unknown along some axes, or
    varies though the parameter does not. Nothing has been done along those axes, so the gradient is there what it was.
    """
    own = UNTYPED if parameter is None else type_of(parameter)
    unclear = {
        axis
        for axis in written.axes
        if written.get(axis) is UNKNOWN or (written.is_varying(axis) and axis in own and not own.is_varying(axis))
    }
    if not unclear or written.ground is not Ground.ABSENT:
        return written
    if before.ground is not Ground.ABSENT:
        return written.with_placements(dict.fromkeys(unclear, UNKNOWN))
    clear = [axis for axis in written.axes if axis not in unclear]
    placed = before.with_placements({axis: written.get(axis) for axis in clear})
    return placed.rescaled({axis: written.exponent(axis) for axis in clear})


def gathers_gradients(tensor: torch.Tensor, origin: Provenance) -> bool:
    """True if ``tensor`` is a part of a gradient, or of a buffer that a gradient is being written into."""
    if is_pieced(tensor):
        return True
    return (beginning(origin) is not None or gradient_origin(tag_of(tensor)) is not None) and is_part(tensor)


def is_part(tensor: torch.Tensor) -> bool:
    """True if there is more in the memory of ``tensor`` than its elements."""
    with no_torch_function():
        storage = storage_of(tensor)
        return storage is not None and tensor.numel() * tensor.element_size() < storage.nbytes()


def written_contents(op: str, tensor: torch.Tensor, operands: Sequence[object]) -> list[Piece]:
    """The gradients that the elements of ``tensor`` are after ``op``, which has not typed it yet; none if unknown."""
    with no_torch_function():
        count = tensor.numel()
        sources = [x for x in operands if isinstance(x, torch.Tensor) and x is not tensor and x.numel() == count]
    if len(sources) > 1 or (not sources and op in OVERWRITING):
        return []
    own = contents_of(tensor)
    if not sources:
        return own
    source = contents_of(sources[0])
    if op in OVERWRITING or all(piece.type.ground is Ground.ZERO for piece in own):
        return source
    if len(own) == len(source) == 1:
        return [replace(own[0], content=content_after(op, own[0], source))]
    return []


def content_after(op: str, own: Piece | None, sources: Sequence[Piece]) -> Content | None:
    """Which gradient the elements are after ``op``, whose destination had ``own`` and whose other operands ``sources``.

    A gradient that is scaled, or added to zeros or to itself, stays that one.
    """
    contents = [piece.content for piece in sources]
    if own is None:
        return contents[0] if len(contents) == 1 else None
    if not sources:
        return None if op in OVERWRITING else own.content
    if op in OVERWRITING or own.type.ground is Ground.ZERO:
        return contents[0] if len(contents) == 1 else None
    if own.content is not None and all(content is None or own.content.is_same(content) for content in contents):
        return own.content
    return None
