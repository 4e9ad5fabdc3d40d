"""What a call's results carry on: their types, the provenance of every placement, and the memory they share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import ATTRIBUTE, Origin, Provenance, Tag, alias, set_tag
from shardwise.interop.torch_compat import base_of, same_memory
from shardwise.types.tensor_type import UNTYPED, TensorType


def origin_of_result(sources: Sequence[int | None], tags: Sequence[Tag | None]) -> Provenance:
    """The provenance of the result: per axis, that of the tensor which gave the placement."""
    if not sources:
        return None
    givers = [None if source is None else tags[source] for source in sources]
    first = None if givers[0] is None else givers[0].origin
    if first.__class__ is not tuple:
        for tag in givers:
            if (None if tag is None else tag.origin) is not first:
                break
        else:
            return first
    return tuple([None if tag is None else _aligned(tag.origin, at, len(sources)) for at, tag in enumerate(givers)])


def _aligned(origin: Provenance, at: int, count: int) -> Origin | None:
    """An operand's origin for the result's axis number ``at``; the two have the same axes in nearly every call."""
    if not isinstance(origin, tuple):
        return origin
    return origin[at] if len(origin) == count else next((one for one in origin if one is not None), None)


def tag_results(
    result: object,
    args: Sequence[object],
    type: TensorType,
    origin: Provenance,
    is_view: bool,
    types: Sequence[TensorType] = (),
    origins: Sequence[Provenance] = (),
) -> None:
    """Give every tensor in ``result`` its type: ``type``, or its own of ``types``; views share the operand's memory.

    ``origin``  the provenance of all, or ``origins`` that of each.
    """
    if type is UNTYPED:
        return
    base = args[0] if args else None
    for number, tensor in enumerate((result,) if result.__class__ is torch.Tensor else tensors_in(result)):
        if tensor is base:
            continue
        own = types[number] if number < len(types) else type
        whence = origins[number] if number < len(origins) else origin
        if is_view and isinstance(base, torch.Tensor) and _is_view_of(tensor, base):
            tag = getattr(base, ATTRIBUTE, None)
            if tag.__class__ is Tag and tag.cell is not None:
                tensor._shardwise = Tag(own, whence, tag.cell)  # type: ignore[attr-defined]
            else:
                alias(tensor, base, own, whence)
        else:
            set_tag(tensor, Tag(own, whence))


def _is_view_of(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """True if the two share memory; asks autograd first, which is quick and knows all but detached ones."""
    root = base_of(tensor)
    if root is not None and (root is base or root is base_of(base)):
        return True
    return same_memory(tensor, base)
