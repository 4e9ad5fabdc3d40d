"""Tensors without data: the mode that makes them, and how they are told from others."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._python_dispatch

from ..torch_call import Arguments, TorchFunction
from .pytree import tree_map
from .registry import private

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


@private(
    "torch._subclasses.fake_tensor.FakeTensorMode",
    lost="checking without memory (--fake), and cond, scan and their like",
)
def fake_tensor_mode() -> FakeTensorMode:
    """A mode in which tensors are made without storage; FakeTensor has no public name."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


@private(
    "torch._subclasses.fake_tensor.FakeTensorMode:fake_tensor_converter",
    lost="nn.Module.to after a check without memory",
)
def forget_fakes(mode: Any) -> None:
    """Drop the weak references that a fake tensor mode keeps: they keep ``nn.Module.to`` from swapping."""
    mode.fake_tensor_converter.meta_converter.tensor_memo.clear()


@private(
    "torch._subclasses.fake_tensor.FakeTensor",
    lost="checking without memory (--fake)",
)
def is_fake(x: object) -> bool:
    """True for a fake tensor; does not load the fake tensor machinery."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(x, module.FakeTensor)


@private(
    "torch._subclasses.fake_tensor.FakeTensor:fake_mode",
    lost="cond, scan and their like in a check without memory",
)
def fake_mode_of(x: Any) -> Any:
    """The mode that a fake tensor was made in; fakes of two modes do not meet."""
    return x.fake_mode


class _Shielded(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts a fake in the place of every real tensor: what has real operands alone, a fake mode may run for real."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode

    def __torch_dispatch__(
        self, func: TorchFunction, types: object, args: Arguments = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if func is not torch.ops.aten.lift_fresh.default:  # a constant that has just been made may keep its value
            args, kwargs = tree_map(self._fake, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _fake(self, value: object) -> object:
        if not isinstance(value, torch.Tensor) or is_fake(value):
            return value
        return self.fake_mode.from_tensor(value)


@private(
    "torch.utils._python_dispatch.TorchDispatchMode",
    lost="cond, scan and their like",
)
@contextlib.contextmanager
def without_data(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Inside, operators run on shapes alone; real tensors are read as such and never written to."""
    keeps_casts = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # or a weight cast in here would be found again outside, without data
    try:
        with fake_mode, _Shielded(fake_mode):
            yield
    finally:
        torch.set_autocast_cache_enabled(keeps_casts)
