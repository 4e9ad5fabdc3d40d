"""Tensors that a call is given or gives back in lists, tuples and dicts."""

from __future__ import annotations

import torch


def tensors_in(value: object) -> tuple[torch.Tensor, ...]:
    """The tensor that ``value`` is, or those in it, in their order.

    Example:
        >>> [tuple(x.shape) for x in tensors_in([torch.ones(2), (torch.ones(3), "no tensor"), {"y": torch.ones(4)}])]
        [(2,), (3,), (4,)]
    """
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, dict):
        value = tuple(value.values())
    return tuple([x for item in value for x in tensors_in(item)]) if isinstance(value, (list, tuple)) else ()
