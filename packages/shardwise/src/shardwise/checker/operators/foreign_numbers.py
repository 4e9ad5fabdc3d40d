"""Numbers that have left torch for numpy: what is made of numpy's numbers once some that ranks do not share went there.

An array keeps no type, so from the first time that numbers which differ, are pending or unknown are handed over, no
array and no number of numpy counts as equal on every rank: what is made of one is unknown, and listed as lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from shardwise.diagnostics.source import is_library_calling, user_location
from shardwise.interop.tensors.tagging import Tag, forget_memory, set_tag, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground

from ..state.session import CheckSession
from ..state.tensor_classes import is_foreign

HANDING_OVER = frozenset({"numpy", "__array__", "__dlpack__"})
"""What gives the numbers of a tensor to another library, and mostly its memory."""


def note_left(session: CheckSession, tensor: torch.Tensor) -> None:
    """The numbers of ``tensor`` are handed over. A constant's memory may be written there, where no call shows."""
    type = type_of(tensor)
    if type.ground.is_constant or type.ground is Ground.EMPTY:
        if not is_library_calling(2) and tensor.device.type == "cpu":
            forget_memory(tensor)
            session.lose("the type of a constant whose memory is handed over, and may be written", user_location())
    elif not all(type.is_equal(axis) and type.exponent(axis) == 0 for axis in type.axes) or not type.axes:
        session.numbers_left = True


def has_foreign(values: Iterable[object]) -> bool:
    """True if one of ``values`` is an array or a number of numpy, also in lists and tuples."""
    return any(has_foreign(v) if v.__class__ in (list, tuple) else is_foreign(v) for v in values)


def run_of_foreign(
    session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords, *, writes: bool
) -> object:
    """Run a call of which an operand may be anything: its result, or what it ``writes``, is unknown."""
    result = func(*args, **kwargs)
    out = kwargs.get("out", args[0] if writes and args else None)
    for made in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(made, torch.Tensor):
            set_tag(made, Tag(UNKNOWN_TYPE))
    if isinstance(out, torch.Tensor):
        forget_memory(out)
    session.unchecked += 1
    session.lose("the type of what is made of numpy's numbers, where numbers that differ have gone", user_location())
    return result
