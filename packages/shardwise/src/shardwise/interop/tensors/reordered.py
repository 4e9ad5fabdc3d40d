"""Tensors of which every rank has rows in another order than on one device: along an axis they are pieces of no dim.

The checker works with them as with shards, since it knows their order (``checker/parts/row_orders.py``). Whoever
asks for their type is told that they vary, because joined in the order of the ranks they are another tensor.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from shardwise.mesh.axis import MeshAxis

from ..torch_compat import no_torch_function
from .own_references import by_tensor

_axes: Any = by_tensor()


def note_reordered(x: torch.Tensor, axes: Collection[MeshAxis]) -> None:
    """The rows of ``x`` are in another order along these axes; along none: in their own places."""
    with no_torch_function():
        if axes:
            _axes[x] = frozenset(axes)
        else:
            _axes.pop(x, None)


def reordered_along(x: object) -> frozenset[MeshAxis]:
    """The axes along which the rows of ``x`` are in another order."""
    if not _axes or not isinstance(x, torch.Tensor):
        return frozenset()
    with no_torch_function():
        found: frozenset[MeshAxis] = _axes.get(x, frozenset())
    return found
