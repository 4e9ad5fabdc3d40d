"""What is known of ``parameter.grad``: its type, and the sums that it still owes.

Plain reads of the tag that stays on the gradient, so they work after the checked block too. A gradient that arrived
while nobody was checking, or that belongs to a leaf without a type, is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shardwise.types.placement import Placement
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Power, TensorType

from ..tensors.dtensors import is_dtensor, local_part
from ..tensors.memory_pieces import Piece
from ..tensors.tagging import Origin, Tag, forget_memory, is_pieced, pieces_of, set_tag, tag_of, type_of
from ..torch_compat import no_torch_function


def gradient_type(parameter: torch.Tensor) -> TensorType:
    """The type of ``parameter.grad`` as the checker knows it; unknown if there is none or nothing is known."""
    gradient = gradient_of(parameter)
    type = UNTYPED if gradient is None else type_of(local_part(gradient))
    return UNKNOWN_TYPE if type is UNTYPED else type


def undischarged(parameter: torch.Tensor) -> dict[Any, Placement]:
    """The mesh axes along which some of ``parameter.grad`` is still a pending sum, each with its placement."""
    found: dict[Any, Placement] = {}
    for type in _types(parameter):
        found |= {axis: type.get(axis) for axis in type.partial_axes}
    return found


def varying(parameter: torch.Tensor) -> list[object]:
    """The mesh axes along which ``parameter`` is equal on every rank and some of its gradient is not."""
    own = type_of(parameter)
    return [axis for axis in own.equal_axes if any(type.is_varying(axis) for type in _types(parameter))]


def pieces_where(parameter: torch.Tensor, holds: Callable[[TensorType], bool]) -> list[Piece]:
    """The pieces of ``parameter.grad`` whose type is such; none if that is so of all of it."""
    gradient = gradient_of(parameter)
    pieces = [] if gradient is None else pieces_of(local_part(gradient))
    found = [piece for piece in pieces if holds(piece.type)]
    return found if len(found) < len(pieces) else []


def _types(parameter: torch.Tensor) -> list[TensorType]:
    gradient = gradient_of(parameter)
    pieces = [] if gradient is None else pieces_of(local_part(gradient))
    return list(dict.fromkeys(piece.type for piece in pieces)) or [gradient_type(parameter)]


def off_scale(parameter: torch.Tensor) -> dict[object, Power]:
    """The axes along which ``parameter.grad`` is known to be too large or too small, each with the exponent."""
    return {axis: exponent for axis, exponent in gradient_type(parameter).scale.items() if exponent}


def of_unknown_scale(parameter: torch.Tensor) -> dict[Any, None]:
    """The axes of several ranks along which nobody knows whether ``parameter.grad`` is too large or too small."""
    return {axis: None for axis, e in gradient_type(parameter).scale.items() if e is None and axis.size() > 1}


def waive(parameter: torch.Tensor) -> None:
    """Nothing is known of ``parameter.grad`` from here on, so nothing is reported of it."""
    gradient = gradient_of(parameter)
    if gradient is not None and is_pieced(local_part(gradient)):
        forget_memory(local_part(gradient))
    elif gradient is not None:
        set_tag(local_part(gradient), Tag(UNKNOWN_TYPE))


def leave_unseen(parameter: torch.Tensor) -> None:
    """The gradient of ``parameter`` has been made where nothing is checked."""
    gradient = gradient_of(parameter)
    waive(parameter)
    if gradient is not None and not is_pieced(local_part(gradient)):
        set_tag(local_part(gradient), Tag(UNKNOWN_TYPE, Unseen(None, "made where nothing is checked")))


def is_unseen(parameter: torch.Tensor) -> bool:
    """True if nobody has seen how ``parameter.grad`` came about, and nobody has said what it is."""
    gradient = gradient_of(parameter)
    if gradient is None or is_dtensor(gradient):
        return False
    tag = tag_of(gradient)
    return tag is None or (isinstance(tag.origin, Unseen) and tag.type is UNKNOWN_TYPE)


class Unseen(Origin):
    """The history of a gradient that arrived while nothing was checked."""

    __slots__ = ()


def gradient_of(x: torch.Tensor) -> torch.Tensor | None:
    """``x.grad`` without asking function modes, and without the warning for tensors that have none."""
    with no_torch_function():
        return x.grad if x.is_leaf or x.retains_grad else None
