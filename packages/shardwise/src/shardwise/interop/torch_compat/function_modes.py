"""Function modes and dispatch modes: who sees the next call, and how to keep them from seeing one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._python_dispatch

from .registry import constant, private

no_torch_function: Any = constant(
    "torch._C.DisableTorchFunction",
    purpose="inside ``with no_torch_function():`` attributes of tensors are read without asking modes and subclasses; "
    "the public DisableTorchFunctionSubclass lets modes in",
    lost="every check",
)
count_function_modes: Any = constant(
    "torch._C._len_torch_function_stack",
    purpose="how many function modes would see the next call; listing them takes ten times as long",
    lost="the quick path of checked calls",
)


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator below autograd, those of ``c10d`` that C++ issues too; torch documents it."""

    supports_higher_order_operators = True
    """So are those that take functions, like flex attention, which torch hands to no other mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # keeping Dynamo out would load it, which takes longer than most checks


@private(
    "torch.overrides._get_current_function_mode_stack",
    lost="every check",
)
def function_modes() -> list[object]:
    """The function modes that would see the next call; while a mode handles one, it is not among them."""
    from torch.overrides import _get_current_function_mode_stack

    return _get_current_function_mode_stack()  # type: ignore[no-any-return, no-untyped-call]


@private(
    "torch._C.DisableTorchFunction",
    lost="every check",
)
def without_torch_function() -> contextlib.AbstractContextManager[object]:
    """Inside, neither function modes nor tensor subclasses see a call; the public one hides subclasses only."""
    return torch._C.DisableTorchFunction()


@private(
    "torch.utils._python_dispatch._disable_current_modes",
    lost="the comparison of ranks",
)
@contextlib.contextmanager
def no_modes() -> Iterator[None]:
    """Inside, neither function modes nor dispatch modes of this thread see what is done."""
    from torch.utils._python_dispatch import _disable_current_modes

    with no_torch_function(), _disable_current_modes():
        yield
