"""The keys of known verdicts: everything that the verdict on a call depends on.

With local types that is the mesh, the operands' interned types and which numbers are zero (``local_key``); global
verdicts, and those on random numbers, also depend on shapes, dtypes and every plain argument, but for fractions, which
no rule reads (``full_key``). Which operands can receive a gradient is added where an answer depends on it
(``gradient_bits``), and by every call that writes. What cannot be put into a key sends the call the slow path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from shardwise.interop.tensors.tagging import ATTRIBUTE, Tag
from shardwise.interop.torch_compat import count_function_modes, no_torch_function, takes_gradient, transforms_active
from shardwise.types.tensor_type import UNTYPED

from ..state.numbers import TYPED_NUMBERS, key_of_number
from ..state.session import CheckSession
from ..state.tensor_classes import NUMBERS, PLAIN, TENSORS

COUNT = "count"
"""In a key, for any number that may be a count."""
_BOUNDS = (int, type(None))
_GRADIENT = object()


def number_key(value: Any) -> object:
    """What a verdict depends on of a number: whether it is zero, and whether it may be a count, of unknown scale."""
    if value.__class__ is complex or -2 < value < 2:
        return value == 0
    return COUNT if value % 1 == 0 else False


def key_of(
    session: CheckSession, args: Sequence[object], kwargs: Mapping[str, object], tags: list[Tag | None]
) -> list[object] | None:
    """The key of an ordinary call; the tags of its tensors are put into ``tags``. None: something cannot be a key."""
    return local_key(session, args, kwargs, tags) if session.local else full_key(session, args, kwargs, tags)


def local_key(
    session: CheckSession, args: Sequence[object], kwargs: Mapping[str, object], tags: list[Tag | None]
) -> list[object] | None:
    """The key by types alone. ``ordinary`` has the same loop written out, because most calls go through it."""
    mesh = session.here.entry
    key: list[Any] = [session.strict, None if mesh is None else mesh.reach]
    for value in args:
        cls = value.__class__
        if cls in TENSORS:
            if not _extend_by_type(value, key, tags):
                return None
        elif cls in NUMBERS:
            key.append(number_key(value))
        elif cls in PLAIN:
            key.append(None)
        elif not extend(value if cls is tuple or cls is list else (value,), key, tags):
            return None
    return key if not kwargs or extend_named(kwargs, key, tags) else None


def full_key(
    session: CheckSession, args: Sequence[object], kwargs: Mapping[str, object], tags: list[Tag | None]
) -> list[object] | None:
    """The key by types, shapes, dtypes and plain arguments."""
    mesh = session.here.entry
    key: list[Any] = [session.strict, session.local, session.partials, None if mesh is None else mesh.reach, len(args)]
    values = (*args, *kwargs, *kwargs.values()) if kwargs else args
    try:
        if count_function_modes():  # another mode, such as the stand-in of a device, would be asked for every shape
            with no_torch_function():
                return key if extend_fully(values, key, tags) else None
        return key if extend_fully(values, key, tags) else None
    except RuntimeError:  # strided nested tensors have no shape
        return None


def gradient_bits(args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, ...]:
    """Which tensors of the call can receive a gradient, after a marker."""
    if not torch.is_grad_enabled():
        return (_GRADIENT,)
    tensors = [value for value in flat_arguments(args, kwargs) if isinstance(value, Tensor)]
    if transforms_active():
        return (_GRADIENT, *map(takes_gradient, tensors))
    return (_GRADIENT, *[tensor.requires_grad for tensor in tensors])


def flat_arguments(args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
    """The arguments in the order in which the hot path meets them, lists and tuples opened once."""
    flat: list[Any] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if value.__class__ is tuple or value.__class__ is list:
            flat.extend(value)
        else:
            flat.append(value)
    return flat


def has_gradient_bits(key: tuple[object, ...]) -> bool:
    return any(part is _GRADIENT for part in key)


def _extend_by_type(tensor: object, key: list[object], tags: list[Tag | None]) -> bool:
    """Extend the key by the type of one tensor; False if it has none for all of its elements."""
    tag = getattr(tensor, ATTRIBUTE, None)
    tags.append(tag)
    if tag.__class__ is Tag and tag.pieces is None:
        key.append(tag.current())
    elif tag is None:
        key.append(UNTYPED)
    else:
        return False
    return True


def extend(items: Any, key: list[object], tags: list[Tag | None]) -> bool:
    """Extend the key by the items of a flat list or tuple; False if it holds something unusual."""
    key.append(len(items))
    for item in items:
        cls = item.__class__
        if cls in TENSORS:
            if not _extend_by_type(item, key, tags):
                return False
        elif cls in NUMBERS:
            key.append(number_key(item))
        elif cls is slice:
            if not (
                item.start.__class__ in _BOUNDS and item.stop.__class__ in _BOUNDS and item.step.__class__ in _BOUNDS
            ):
                return False
        elif cls in TYPED_NUMBERS:
            key.append(key_of_number(item))
        elif cls not in PLAIN:
            return False
    return True


def extend_named(kwargs: Mapping[str, object], key: list[object], tags: list[Tag | None]) -> bool:
    """Extend the key by keyword arguments; False if one holds something unusual."""
    for name, value in kwargs.items():
        key.append(name)
        cls = value.__class__
        if cls in PLAIN:
            key.append(None)
        elif cls in NUMBERS:
            key.append(number_key(value))
        elif not extend(value if cls is tuple or cls is list else (value,), key, tags):
            return False
    return True


def extend_fully(items: Sequence[Any], key: list[object], tags: list[Tag | None]) -> bool:
    """Extend the key by everything a global verdict may depend on; False if something cannot be a key."""
    for item in items:
        cls = item.__class__
        if cls is Tensor or cls in TENSORS:
            tag = getattr(item, ATTRIBUTE, None)
            tags.append(tag)
            if tag.__class__ is Tag:
                if tag.cell is None or tag.cell.writes is None:
                    key.append(tag.type)
                elif tag.pieces is None:
                    key.append(tag.current())
                else:
                    return False
            elif tag is None:
                key.append(UNTYPED)
            else:
                return False
            if cls is not Tensor and cls is not Parameter and item.is_nested:
                return False
            key += (item.shape, item.dtype)  # a mask is read as something else than an index of its shape
        elif cls is tuple or cls is list or cls is torch.Size:
            key.append(cls)  # a list of numbers is an index, a tuple of them is one for each dim
            key.append(len(item))
            if not extend_fully(item, key, tags):
                return False
        elif cls is slice:
            key.append(cls)
            if not extend_fully((item.start, item.stop, item.step), key, tags):
                return False
        elif cls is int:
            key.append(item)
        elif cls in TYPED_NUMBERS:
            key += (key_of_number(item), item)
        elif cls is float:
            key.append(cls)  # 1 and 1.0 are equal keys
            key.append(item if item.is_integer() or isinf(item) else None)  # a norm's order; no rule reads a fraction
        elif cls in NUMBERS:
            key.append(cls)
            key.append(item == 0)
        elif cls in PLAIN and cls.__hash__ is not None:
            key.append(item)
        else:
            return False
    return True
