"""What memory does a tensor have? None of its own, if it is sparse or wraps others."""

from __future__ import annotations

import torch


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory of ``tensor``; None for sparse and wrapper tensors."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # what torch raises for them
        return None
