"""What a program reads of a tensor's shape: numbers with a type, so that a division by them is one by a known count.

The size of a dim that an axis cuts evenly is one n-th of what it is on one device, and that of shards that may differ
in length is each rank's own. Where nobody says which dims are cut, nothing is known. Sizes are made once for a type and
a shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from shardwise.interop.tensors.own_lengths import RaggedTag
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import V
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import Exponent, Ground, TensorType

from ..parts.micro_batches import TOLD_ROWS, axes_of_no_size
from ..state.number_types import number_type
from ..state.numbers import TYPED_NUMBERS, plain, typed
from ..state.session import CheckSession

LIMIT = 4096
_shapes: dict[tuple[TensorType, tuple[int, ...]], tuple[Any, ...]] = {}
_counts: dict[tuple[TensorType, tuple[int, ...]], int] = {}


def sizes_of_typed(type: TensorType, shape: torch.Size) -> Any:
    """``shape``, of a tensor of this type, with sizes that know their scale."""
    if type.ground is not Ground.ABSENT or not type.axes:
        return shape
    key = (type, shape)
    found = _shapes.get(key)
    if found is None:
        if not all(size.__class__ is int for size in shape):
            return shape
        if len(_shapes) >= LIMIT:
            _shapes.clear()
        made = [_size(type, dim, size) for dim, size in enumerate(shape)]
        found = _shapes[key] = torch.Size(made) if shape.__class__ is torch.Size else tuple(made)
    return found


def _size(type: TensorType, dim: int, size: int) -> Any:
    cut = entry_axes(type.spec[dim]) if type.spec is not None and dim < len(type.spec) else ()
    own = {axis for axis in cut if axis in type.uneven}
    known = {axis for entry in type.spec or () for axis in entry_axes(entry)}
    scale: dict[Any, Exponent] = {}
    for axis in type.axes:
        nobody = type.get(axis).is_unknown or (type.is_varying(axis) and axis not in known)
        scale[axis] = None if nobody or axis in own else -1 if axis in cut else 0
    told = number_type(type.axes, scale)
    return typed(size, told.with_placements(dict.fromkeys(own, V)) if own else told)


def shape(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """``x.shape`` and ``x.size()``."""
    result: Any = func(*args, **kwargs)
    if result.__class__ is torch.Size and args:
        return _own_sizes(args[0], sizes_of_typed(type_of(args[0]), result))
    if result.__class__ is int and len(args) + len(kwargs) == 2:
        dim = args[1] if len(args) == 2 else kwargs.get("dim")
        own = args[0] if args else kwargs.get("self")
        if dim.__class__ is int and isinstance(own, torch.Tensor) and not own.is_nested:
            with no_torch_function():
                whole = own.shape
            return _own_sizes(own, sizes_of_typed(type_of(own), whole))[dim]
    return result


def _own_sizes(x: object, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """``sizes`` of ``x``, of which those vary that each rank has found for itself by values, and those are on no scale
    that are the same on any number of ranks.
    """
    tag = tag_of(x)
    if tag.__class__ is not RaggedTag and not TOLD_ROWS:
        return sizes
    made: list[Any] = list(sizes)
    for axis in axes_of_no_size(x) if isinstance(x, torch.Tensor) else ():
        made = [_rescaled(size, axis) for size in made]
    for own in tag.lengths if tag.__class__ is RaggedTag else ():
        size = made[own.dim]
        told = type_of(size) if size.__class__ in TYPED_NUMBERS else number_type(type_of(x).axes, {})
        made[own.dim] = typed(plain(size), told.with_placements({own.axis: V}))
    return torch.Size(made)


def _rescaled(size: object, axis: MeshAxis) -> object:
    told = type_of(size)
    return typed(plain(size), told.rescaled({axis: 0})) if told.exponent(axis) == -1 else size


def numel(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """``x.numel()``: the product of the sizes."""
    result: Any = func(*args, **kwargs)
    own: Any = args[0] if args else None
    if result.__class__ is not int or not isinstance(own, torch.Tensor) or not own.ndim or own.is_nested:
        return result
    with no_torch_function():
        whole = own.shape
    if tag_of(own).__class__ is RaggedTag or TOLD_ROWS:
        return _product(_own_sizes(own, sizes_of_typed(type_of(own), whole)), result)
    key = (type_of(own), whole)
    found = _counts.get(key)
    if found is None:
        if len(_counts) >= LIMIT:
            _counts.clear()
        found = _counts[key] = _product(sizes_of_typed(*key), result)
    return found


def _product(sizes: Sequence[int], plain_product: int) -> int:
    """The product with its type, unless a size says another number than torch does."""
    total = math.prod(sizes)
    return total if total == plain_product else plain_product


SIZES = {"shape": shape, "size": shape, "numel": numel, "nelement": numel}
"""The handlers, by name."""
