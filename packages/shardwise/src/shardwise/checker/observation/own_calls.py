"""Which calls are the program's own? What it writes itself, and what the modules do that it calls.

What torch does for itself is not: the arithmetic of a device mesh, the initialisation of a layer, an optimizer's step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

import torch

from shardwise.diagnostics.source import Site, is_internal
from shardwise.interop.tensors.tagging import tag_of

from ..call.cache_key import flat_arguments

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_SPELLINGS = tuple(_TORCH + name for name in ("overrides.py", "_tensor.py", "functional.py", "nn/functional.py"))
"""Files of torch whose functions are operators under another name."""
_MODULE_CALL = ("_wrapped_call_impl", "_call_impl", "inner")
"""The functions through which a module's ``forward`` is called."""


def own_site(depth: int = 1) -> Site | None:
    """Where the program makes the call that is being executed; None if torch makes it for itself."""
    frame: FrameType | None = sys._getframe(depth + 1)
    own = True
    while frame is not None and is_internal(frame.f_code):
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "forward":
            own = True
        elif name.startswith(_TORCH) and name not in _SPELLINGS and frame.f_code.co_name not in _MODULE_CALL:
            own = False
        frame = frame.f_back
    return Site(frame.f_code, frame.f_lasti) if frame is not None and own else None


def has_tensor(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """True if a tensor is among the arguments."""
    return any(isinstance(value, torch.Tensor) for value in flat_arguments(args, kwargs))


def has_typed(values: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """True if one of them is a tensor of which something is known that is not true of every constant."""
    for value in flat_arguments(values, kwargs):
        tag = tag_of(value) if isinstance(value, torch.Tensor) else None
        type = None if tag is None else tag.current()
        if type is not None and type.local and not type.ground.is_constant:
            return True
    return False
