"""Which argument classes carry types, which never do? Two sets for the hot path, filled as classes are met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Number

import torch

from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.tensors.dtensors import is_dtensor

TENSORS: set[type] = {torch.Tensor, torch.nn.Parameter}
"""Exact classes that carry a tag and go the hot path."""

NUMBERS: frozenset[type] = frozenset({int, float, bool, complex})
"""Exact classes of numbers: a verdict may depend on whether one is zero. Numbers of other classes go the slow path."""

PLAIN: set[type] = {type(None), str, torch.dtype, torch.device, torch.Size, type(...)}
"""Exact classes that never carry a type and on whose value no verdict depends."""


def is_foreign(value: object) -> bool:
    """True for an array or a number of numpy, which torch computes with and which carries no type."""
    return value.__class__.__module__.partition(".")[0] == "numpy"


_CONTAINERS = (list, tuple, dict, slice, set, frozenset)


def is_dtensor_call(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """True if a DTensor takes part: its placements are its own business, the call runs untouched.

    The classes of the arguments are put into one of the sets, so that the next call with them is quick.
    """
    return _meet((*args, *kwargs.values()))


def _meet(values: Iterable[object]) -> bool:
    found = False
    for value in values:
        cls = value.__class__
        if cls in TENSORS or cls in PLAIN or cls in NUMBERS:
            continue
        if isinstance(value, torch.Tensor):
            if is_dtensor(value):
                found = True
            else:
                TENSORS.add(cls)
        elif isinstance(value, (list, tuple)):
            found |= _meet(value)
        elif not isinstance(value, (*_CONTAINERS, Scalar, Number)) and not is_foreign(value):
            PLAIN.add(cls)
    return found
