"""Tensors: their memory, the hooks on them, and kernels on lists of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from .functorch import transforms_active, within_transforms
from .registry import private


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory of ``tensor``; None for sparse and wrapper tensors."""
    try:
        return tensor.untyped_storage()
    except RuntimeError:  # what torch raises for tensors without memory of their own
        return None


@private(
    "torch.UntypedStorage._cdata",
    lost="views, which share their type with their base",
)
def storage_key(tensor: torch.Tensor) -> int:
    """The same number for all tensors that share a storage, as long as one of them lives."""
    storage = storage_of(tensor)
    return id(tensor) if storage is None else int(storage._cdata)


@private(
    "torch.UntypedStorage._cdata",
    lost="views, which share their type with their base",
)
def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if the tensors share a storage, also where autograd does not call one a view (detach)."""
    one, other = storage_of(a), storage_of(b)
    if one is None and other is None and transforms_active():
        one, other = storage_of(within_transforms(a)), storage_of(within_transforms(b))
    return one is not None and other is not None and bool(one._cdata == other._cdata)


@private("torch.Tensor._base", lost="views, which share their type with their base")
def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that ``tensor`` is a view of, as autograd knows it; None if it is no view."""
    return tensor._base


@private(
    "torch.Tensor._backward_hooks",
    "torch.Tensor._post_accumulate_grad_hooks",
    lost="hooks on parameters that were there before the check began",
)
def hook_tables(tensor: torch.Tensor) -> tuple[dict[int, Any], dict[int, Any]]:
    """The hooks on the gradient of ``tensor`` and those that run after it has been accumulated, by their keys."""
    return tensor._backward_hooks or {}, getattr(tensor, "_post_accumulate_grad_hooks", None) or {}


@private(
    "torch._foreach_norm",
    lost="shardwise.train.grad_norm",
    since="2.4",
)
def foreach_norm(tensors: list[torch.Tensor], power: float, dtype: torch.dtype) -> Sequence[torch.Tensor]:
    """The norm of each tensor, computed in ``dtype``, in few kernels; ``torch.nn.utils`` calls the same."""
    return torch._foreach_norm(tensors, power, dtype=dtype)


@private(
    "torch._foreach_mul_",
    lost="shardwise.train.clip_grad_norm_",
    since="2.1",
)
def foreach_scale_(tensors: list[torch.Tensor], factor: torch.Tensor) -> None:
    """Multiply all tensors in place by ``factor``, which has no dims, in few kernels."""
    torch._foreach_mul_(tensors, factor)


@private(
    "torch.autograd._unsafe_preserve_version_counter",
    lost="the running statistics of batch normalisation",
    since="2.0",
)
def keeping_version(tensor: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """In the block, changes of ``tensor`` in place are no changes to autograd, which may have saved it."""
    return torch.autograd._unsafe_preserve_version_counter(tensor)  # type: ignore[attr-defined]


@private("torch.Tensor._version", lost="which rank has what reduce has summed")
def writes_of(tensor: torch.Tensor) -> int | None:
    """How often ``tensor`` has been written in place; None where torch does not count (inference mode)."""
    return None if tensor.is_inference() else int(tensor._version)
