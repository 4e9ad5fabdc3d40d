"""DTensors, recognised without loading them: one exists only if the program has imported the module."""

from __future__ import annotations

import sys

import torch

from ..torch_compat import local_tensor_of


def is_dtensor(value: object) -> bool:
    """True for a DTensor."""
    cls = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return cls is not None and isinstance(value, cls)


def is_pending(tensor: torch.Tensor) -> bool:
    """True for a DTensor whose reduction is still to come; what its local tensors mean, only torch may know."""
    return is_dtensor(tensor) and any(place.is_partial() for place in tensor.placements)  # type: ignore[attr-defined]


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds: the tensor itself, or the local tensor in a DTensor."""
    return local_tensor_of(tensor) if is_dtensor(tensor) else tensor
