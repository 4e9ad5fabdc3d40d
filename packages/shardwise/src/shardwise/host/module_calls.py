"""What modules are called with, keywords too: PyTorch's own hooks before ``forward`` are shown positional arguments.

with telling_calls(tell):
    model(ids, mask=mask)       # tell(model, {"0": ids, "mask": mask}), and so for every module inside
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .attribute_patch import patched

Tell = Callable[[torch.nn.Module, Mapping[str, object]], None]


@contextlib.contextmanager
def telling_calls(tell: Tell) -> Iterator[None]:
    """Inside the block ``tell`` gets every module that is called, and its arguments by position or by keyword.

    Code that is being compiled is left alone: what a compiled module is called with is known from outside of it.
    """
    plain: Any = torch.nn.Module.__call__

    @functools.wraps(plain)
    def __call__(self: torch.nn.Module, *args: object, **kwargs: object) -> object:
        if not torch.compiler.is_compiling():
            tell(self, {**{str(at): value for at, value in enumerate(args)}, **kwargs})
        return plain(self, *args, **kwargs)

    with patched(torch.nn.Module, "__call__", __call__):
        yield
