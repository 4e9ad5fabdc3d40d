"""The type of which derivatives are taken: what a tensor was before it was written where autograd does not see it.

logged = loss.detach()
dist.all_reduce(logged)  the memory holds a sum now, and loss too
loss.backward()          derives each rank's own loss
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch

from shardwise.types.tensor_type import TensorType

from ..torch_compat import no_torch_function
from .tagging import Cell, tag_of, type_of

_before: WeakKeyDictionary[Cell, tuple[torch.Size, TensorType]] = WeakKeyDictionary()
"""What memory held before the first write that autograd does not see, if none that it sees came later."""


def writes(x: torch.Tensor) -> None:
    """``x`` is about to be written."""
    tag = tag_of(x)
    if tag is None or tag.cell is None:
        return
    with no_torch_function():
        if x.requires_grad:
            _before.pop(tag.cell, None)
        else:
            _before.setdefault(tag.cell, (x.shape, tag.type_for(x)))


def derived_type(x: torch.Tensor) -> TensorType:
    """The type of ``x`` as a function of the leaves of its graph."""
    tag = tag_of(x)
    with no_torch_function():
        known = None if tag is None or tag.cell is None or x.grad_fn is None else _before.get(tag.cell)
        return known[1] if known is not None and known[0] == x.shape else type_of(x)
