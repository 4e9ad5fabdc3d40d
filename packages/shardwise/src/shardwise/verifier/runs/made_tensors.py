"""Which tensors has the program made of others, so that they are no data? A mark on each says so.

A weak reference in its place would keep torch from swapping the contents of a tensor, as ``module.to_empty`` does.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

_MARK = "_shardwise_made"


def note_made(tensors: Iterable[object]) -> None:
    """Modules have made these, or they are computed of such, or of anything with a gradient, and have none."""
    for x in tensors:
        if isinstance(x, torch.Tensor):
            x.__dict__[_MARK] = True


def is_made(x: torch.Tensor) -> bool:
    """Whether it was noted."""
    return _MARK in x.__dict__
