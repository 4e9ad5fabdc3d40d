"""What type does a bucket of gradients have? Along each axis what all of them agree on, and nothing where they do not.

Gradients are laid side by side to be sent in one message. A pending sum beside varying values would be an error in a
forward pass; here every piece keeps its meaning and is taken out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import Tag, alias, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.types.placement import UNKNOWN, Placement, R, V
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..operators.ordinary import Handler
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call

JOINING = ("cat", "concat", "concatenate")
FLATTEN, UNFLATTEN = "flatten_dense_tensors", "unflatten_dense_tensors"


def joining(usual: Handler) -> Handler:
    """The handler of a concatenation: by ``usual``, unless it mixes gradients that have their sums before them."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        tensors = args[0] if args else kwargs.get("tensors")
        if not isinstance(tensors, (list, tuple)) or not _is_mixed_bucket(tensors, session.local):
            return usual(session, func, args, kwargs)
        result = func(*args, **kwargs)
        session.checked += 1
        _tag(result, tensors, session.local)
        return result

    return handle


def flatten(session: CheckSession, func: TorchFunction, args: Sequence[Any], kwargs: Keywords) -> object:
    """``torch._utils._flatten_dense_tensors``."""
    result = func(*args, **kwargs)
    if not is_dtensor_call(args, kwargs):
        _tag(result, args[0], session.local)
    return result


def unflatten(session: CheckSession, func: Any, args: Arguments, kwargs: Keywords) -> object:
    """``torch._utils._unflatten_dense_tensors``: views of the bucket, which says what is in them."""
    results = func(*args, **kwargs)
    tag = tag_of(args[0])
    if tag is not None and not is_dtensor_call(args, kwargs):
        for piece in results:
            alias(piece, args[0], tag.current().with_spec(None), tag.origin)
    return results


def _is_mixed_bucket(tensors: Sequence[object], local: bool) -> bool:
    types = []
    for tensor in tensors:
        tag = tag_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if tag is None or not (tag.current().ground.is_constant or gradient_origin(tag) is not None):
            return False
        types.append(tag.current())
    if not local and any(type.spec is not None for type in types):
        return True
    return any(type.partial_axes for type in types) and any(
        _joined([type.get(axis) for type in types if axis in type]) is UNKNOWN for axis in types[0].axes
    )


def _tag(bucket: object, tensors: Sequence[object], local: bool) -> None:
    """Type ``bucket`` by what is in it; zeros between the gradients are any of them.

    With global types nothing is known along an axis that shards a gradient: the bucket is no tensor of the program.
    """
    types = [type_of(tensor) for tensor in tensors if not type_of(tensor).ground.is_constant]
    if not isinstance(bucket, torch.Tensor) or not types or any(type is UNTYPED for type in types):
        return
    if any(type.ground is not Ground.ABSENT for type in types):
        set_tag(bucket, Tag(UNKNOWN_TYPE))
        return
    axes = [axis for axis in types[0].axes if all(axis in type for type in types)]
    origin = next((found for tensor in tensors if (found := gradient_origin(tag_of(tensor))) is not None), None)
    places = {axis: _joined([type.get(axis) for type in types]) for axis in axes}
    if not local:
        places = {axis: UNKNOWN if place.is_varying else place for axis, place in places.items()}
    set_tag(bucket, Tag(TensorType.of(places), origin))


def _joined(places: Sequence[Placement]) -> Placement:
    """What values of these placements are when they lie in one tensor."""
    first = places[0]
    if all(place is first for place in places):
        return first
    if all(place.is_equal for place in places):
        return R
    return V if all(place.is_varying or place.is_equal for place in places) else UNKNOWN
