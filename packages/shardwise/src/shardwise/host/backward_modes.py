"""Function modes in backward: torch takes them off for the call of ``backward``.

What the backward of Python functions does in it, and what activation checkpointing recomputes, would be seen by none.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from torch.overrides import TorchFunctionMode

from shardwise.interop.torch_compat import RUN_BACKWARD

from .attribute_patch import patched


@contextlib.contextmanager
def on_in_backward(mode: TorchFunctionMode) -> Iterator[None]:
    """Inside the block every backward pass runs with ``mode`` on."""
    owner, name = RUN_BACKWARD.owner(), RUN_BACKWARD.attribute
    with patched(owner, name, _with(mode, vars(owner)[name])):
        yield


def _with(mode: TorchFunctionMode, run: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(run)
    def run_backward(*args: object, **options: object) -> object:
        with mode:
            return run(*args, **options)

    return run_backward
