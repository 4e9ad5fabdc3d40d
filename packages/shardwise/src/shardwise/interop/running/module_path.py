"""Which module of the program is running? ``layers.3.mlp.down``, from the calls of modules on the stack."""

from __future__ import annotations

import inspect
import sys
from types import FrameType

from torch import nn

_CALLING = inspect.getfile(nn.Module)
"""Where torch calls a module's forward."""


def module_path() -> str:
    """The path of the innermost module that is being called, as the outermost one names it; empty if none is.

    For findings only: the stack is walked and names are looked up.
    """
    modules: list[nn.Module] = []  # the innermost first
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == _CALLING:
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and not (modules and modules[-1] is module):
                modules.append(module)
        frame = frame.f_back
    parts: list[str] = []
    while len(modules) > 1:
        outer = modules.pop()
        inner = modules[-1]
        name = next((name for name, module in outer.named_modules() if module is inner), None)
        parts = [] if name is None else [*parts, name]  # not a child: it is the outermost that has a name for the rest
    return ".".join(part for part in parts if part)
