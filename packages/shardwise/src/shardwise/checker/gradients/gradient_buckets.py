"""What type does a bucket of gradients have? Each of its elements that of the gradient which it is.

Gradients are laid side by side to be sent in one message. A pending sum beside varying values would be an error in a
forward pass; here every piece keeps its meaning and is taken out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.diagnostics.source import user_location
from shardwise.interop.autograd.gradient_content import contents_of
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.memory_pieces import joined_placement, joined_type, laid_into
from shardwise.interop.tensors.tagging import Tag, alias, set_pieces, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import is_transformed, no_torch_function, same_memory
from shardwise.types.placement import UNKNOWN
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..operators.gradient_copies import follow
from ..operators.ordinary import Handler
from ..state.session import CheckSession
from ..state.tensor_classes import is_dtensor_call

IN_A_ROW = ("view", "reshape", "flatten", "ravel")
JOINING = ("cat", "concat", "concatenate")
FLATTEN, UNFLATTEN = "flatten_dense_tensors", "unflatten_dense_tensors"


def joining(usual: Handler) -> Handler:
    """The handler of a concatenation: by ``usual``, unless it joins gradients."""

    def handle(session: CheckSession, func: Any, args: Arguments, kwargs: Keywords) -> object:
        tensors = args[0] if args else kwargs.get("tensors")
        if not isinstance(tensors, (list, tuple)) or not _is_bucket(tensors):
            return usual(session, func, args, kwargs)
        result = func(*args, **kwargs)
        session.checked += 1
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        _tag(session, result, tensors, in_order=dim == 0)
        if dim != 0:
            follow(result, func, args, kwargs, moves=True)
        return result

    return handle


def flatten(session: CheckSession, func: Any, args: Sequence[Any], kwargs: Keywords) -> object:
    """``torch._utils._flatten_dense_tensors``."""
    result = func(*args, **kwargs)
    if not is_dtensor_call(args, kwargs):
        _tag(session, result, args[0], in_order=True)
    return result


def unflatten(session: CheckSession, func: Any, args: Arguments, kwargs: Keywords) -> object:
    """``torch._utils._unflatten_dense_tensors``: views of the bucket, which says what is in them."""
    results = func(*args, **kwargs)
    tag = tag_of(args[0])
    if tag is not None and not is_dtensor_call(args, kwargs):
        for piece in results:
            alias(piece, args[0], tag.current().with_spec(None), tag.origin)
    return results


def in_a_row(usual: Handler) -> Handler:
    """The handler of an operator that may lay all elements of a tensor in a row: by ``usual``, but for a gradient.

    A shard of another dim than the first is no shard of the row. A bucket can be made of it, or a sum over other axes.
    """

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        x: Any = args[0] if args and not session.local else None
        tag = tag_of(x) if isinstance(x, torch.Tensor) else None
        spec = None if tag is None or gradient_origin(tag) is None else tag.current().spec
        if tag is None or spec is None or not any(map(entry_axes, spec[1:])):
            return usual(session, func, args, kwargs)
        with no_torch_function():
            made: Any = func(*args, **kwargs)
            is_row = made.ndim == 1 and x.is_contiguous()
        if not is_row:
            return usual(session, func, args, kwargs)
        session.checked += 1
        if same_memory(made, x):
            alias(made, x, tag.current().with_spec(None), tag.origin)
        else:
            _tag(session, made, [x], in_order=True)
        return made

    return handle


def _is_bucket(tensors: Sequence[object]) -> bool:
    tags = [tag_of(tensor) if isinstance(tensor, torch.Tensor) else None for tensor in tensors]
    if any(tag is None for tag in tags):
        return False
    if any(isinstance(tensor, torch.Tensor) and is_transformed(tensor) for tensor in tensors):
        return False  # it has no memory
    gradients = [gradient_origin(tag) is not None for tag in tags]
    return any(gradients) and all(
        is_gradient or type_of(tensor).ground.is_constant
        for is_gradient, tensor in zip(gradients, tensors, strict=True)
    )


def _tag(session: CheckSession, bucket: object, tensors: Sequence[Any], *, in_order: bool) -> None:
    """Type ``bucket`` by what is in it: the elements of ``tensors`` one after the other, if it is ``in_order``."""
    types = [type_of(tensor) for tensor in tensors]
    typed = [type for type in types if not type.ground.is_constant]
    if not isinstance(bucket, torch.Tensor) or not typed or any(type is UNTYPED for type in typed):
        return
    origin = next((found for tensor in tensors if (found := gradient_origin(tag_of(tensor))) is not None), None)
    with no_torch_function():
        in_order = in_order and bucket.is_contiguous()
    if in_order:
        pieces = [piece for tensor in tensors for piece in contents_of(tensor)]
        set_pieces(bucket, laid_into(bucket, pieces), origin)
        return
    if any(type.ground is not Ground.ABSENT for type in typed):
        set_tag(bucket, Tag(UNKNOWN_TYPE))
        return
    axes = [axis for axis in typed[0].axes if all(axis in type for type in typed)]
    places = {axis: joined_placement([type.get(axis) for type in typed]) for axis in axes}
    if not session.local:
        places = {axis: UNKNOWN if place.is_varying else place for axis, place in places.items()}
    if UNKNOWN in places.values():
        session.lose("the type of gradients that are joined along another dim than the first", user_location())
    set_tag(bucket, Tag(TensorType.of(places, scale=joined_type(typed).scale), origin))
