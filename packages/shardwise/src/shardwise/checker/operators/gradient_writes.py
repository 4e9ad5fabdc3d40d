"""What may be written into a gradient? More than into other tensors: whoever overwrites all of it says what it is now.

Gradients are zeroed, replaced by pieces of a bucket that has been summed, and gathered in buffers. Where buckets hold
gradients of several types side by side, nothing is known of the mixture.
"""

from __future__ import annotations

import torch

from shardwise.interop.autograd.gradient_origin import beginning, gradient_origin, owner_of
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.interop.torch_compat import no_torch_function, storage_of
from shardwise.types.placement import UNKNOWN
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

OVERWRITING = ("copy_", "zero_", "fill_")


def overwritten(op: str, tensor: torch.Tensor, result: TensorType) -> TensorType | None:
    """The type of ``tensor``, a gradient, after ``op`` has written ``result`` over all of it; None for other writes."""
    tag = tag_of(tensor)
    if op not in OVERWRITING or tag is None or tensor.requires_grad or gradient_origin(tag) is None:
        return None
    if not _is_whole(tensor):
        return None
    if result.ground.is_constant and tag.cell is None:
        return result
    if not result.axes or result.ground is not Ground.ABSENT:
        return UNKNOWN_TYPE
    return into_gradient(owner_of(tensor), tag.current(), result)


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
    return before.with_placements({axis: written.get(axis) for axis in written.axes if axis not in unclear})


def gathers_gradients(tensor: torch.Tensor, origin: object) -> bool:
    """True if a gradient is being written into a part of a buffer, beside gradients of other types perhaps."""
    tag = tag_of(tensor)
    return tag is not None and tag.cell is not None and not _is_whole(tensor) and beginning(origin) is not None


def _is_whole(tensor: torch.Tensor) -> bool:
    """True if ``tensor`` is all of a gradient, or all of its memory."""
    if owner_of(tensor) is not None:
        return True
    with no_torch_function():
        storage = storage_of(tensor)
        return storage is not None and tensor.numel() * tensor.element_size() == storage.nbytes()
