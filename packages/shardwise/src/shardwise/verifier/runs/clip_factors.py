"""The factors by which gradients are clipped: behind them nothing shows of how large the gradients were.

factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)          torch's own, and what is written like it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from shardwise.interop.tensors.dtensors import is_pending
from shardwise.interop.tensors.local_form import local_tensor
from shardwise.interop.torch_compat import no_torch_function

_CLAMPS = (torch.clamp, torch.Tensor.clamp, torch.clip, torch.Tensor.clip)
_CLAMPS_ABOVE = (torch.clamp_max, torch.Tensor.clamp_max)


def clip_factor(
    func: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    result: object,
    parameters: Iterable[torch.Tensor],
) -> torch.Tensor | None:
    """What ``func`` has made, if it is a number held to at most 1 while gradients of ``parameters`` wait for a step."""
    if not _is_held_to_one(func, args, kwargs) or not isinstance(result, torch.Tensor):
        return None
    with no_torch_function():
        if result.numel() != 1 or result.requires_grad or not result.is_floating_point():
            return None
        if is_pending(result):
            return None
        waits = any(parameter.grad is not None for parameter in parameters)
    return local_tensor(result) if waits else None


def _is_held_to_one(func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    if func in _CLAMPS:
        low, high = (*args[1:3], None, None)[:2]
        return kwargs.get("min", low) is None and kwargs.get("max", high) == 1
    return func in _CLAMPS_ABOVE and kwargs.get("max", args[1] if len(args) > 1 else None) == 1
