"""How much of a buffer of zeros has this rank written? What it left zero is for the other ranks to fill.

Ranks that share out the work write their results side by side into a buffer of zeros and sum it: each element has one
addend. Types do not see it, because on this rank all that was written is equal on every rank. Counted are the elements
written since the buffer was zero, through the buffer and through its views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import base_of, no_torch_function
from shardwise.types.tensor_type import Ground

WRITES = frozenset({"setitem", "copy_", "add_", "zero_"})

_written: Any = by_tensor()
"""The number of elements, by the buffer that owns the memory."""


def note(op: str, destination: object, args: Sequence[object]) -> None:
    """``op`` is about to write into ``destination``; call it before it runs. ``args`` are those of a ``setitem``."""
    if not isinstance(destination, torch.Tensor):
        return
    with no_torch_function():
        buffer = base_of(destination)
        buffer = destination if buffer is None else buffer
        if op == "zero_" and destination is buffer:
            _written[buffer] = 0
        elif (_written and buffer in _written) or type_of(buffer).ground is Ground.ZERO:
            _written[buffer] = _written.get(buffer, 0) + _count(op, destination, args)


def _count(op: str, destination: torch.Tensor, args: Sequence[Any]) -> int:
    if op != "setitem":
        return destination.numel()
    try:
        return destination[args[1]].numel()
    except (IndexError, TypeError, RuntimeError):
        return destination.numel()  # the write itself will say what is wrong


def left_to_others(tensor: torch.Tensor, ranks: int) -> bool:
    """True if this rank has filled ``tensor`` in part only; fewer elements than ``ranks`` are padding.

    A buffer that was written twice in one place counts as filled.
    """
    with no_torch_function():
        return tensor in _written and 0 < _written[tensor] <= tensor.numel() - ranks


def completed(tensor: torch.Tensor) -> None:
    """Every element of ``tensor`` comes from some rank now."""
    with no_torch_function():
        _written.pop(tensor, None)
