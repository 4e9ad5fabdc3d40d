"""What can be pending of elements of a dtype: truth values have no sum, and complex numbers no order."""

from __future__ import annotations

from typing import Any, NamedTuple

from .notation import format_placement
from .placement import P
from .tensor_type import TensorType

NO_SUM = "the sum of truth values is none, so nothing of dtype bool is {place} over {axis}"


class NotPending(NamedTuple):
    """Why nothing of a dtype is of a type: the axis over which it cannot be, a sentence, and what may be meant."""

    axis: Any
    message: str
    help: tuple[str, ...] = ()


def not_pending(dtype: str, type: TensorType) -> NotPending | None:
    """The first axis over which elements of ``dtype`` cannot be pending as ``type`` says, if there is one.

    Example:
        >>> tp = normalize_axis("tp")
        >>> not_pending("bool", TensorType.of({tp: P})).message
        'the sum of truth values is none, so nothing of dtype bool is P over tp'
        >>> not_pending("bool", TensorType.of({tp: P("max")}))
    """
    for axis in type.partial_axes:
        place = type.get(axis)
        if dtype == "bool" and place is P:
            return NotPending(
                axis,
                NO_SUM.format(place=format_placement(type, axis), axis=repr(axis)),
                ("P(max) where any rank has to say True, P(min) where all have to", "an integer dtype, to count"),
            )
        if place.is_extremum and dtype.startswith(("complex", "bcomplex")):
            return NotPending(
                axis, f"complex numbers have no order, so nothing of dtype {dtype} is {place!r} over {axis!r}"
            )
    return None
