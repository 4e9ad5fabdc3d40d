"""Losses whose memory a collective has written before backward starts from them: they are derived as what they were.

logged = loss.detach()
dist.all_reduce(logged)    loss holds the sum too, of which autograd knows nothing
loss.backward()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from shardwise.interop.running.recording import has_values
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.derived_types import derived_type
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Tag, set_tag
from shardwise.interop.torch_compat import no_torch_function

_KEPT = 64
"""So many single numbers are remembered; a program logs a few before it starts backward."""


class SummedLosses:
    """What single numbers were before collectives wrote into them."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By the address: what was written, which keeps its memory from others, and a copy."""

    def before_collective(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """A collective is about to be called: is it given single numbers?"""
        with no_torch_function(), torch.no_grad():
            for x in tensors_in([*args, *kwargs.values()]):
                if x.numel() == 1 and x.is_floating_point() and not is_dtensor(x) and has_values(x):
                    self._before.setdefault(x.data_ptr(), (x, x.detach().clone()))
            while len(self._before) > _KEPT:
                self._before.pop(next(iter(self._before)))

    def as_derived(self, root: torch.Tensor) -> torch.Tensor:
        """``root``, from which backward starts, or what it was."""
        with no_torch_function():
            if root.numel() != 1 or root.grad_fn is None or is_dtensor(root) or not has_values(root):
                return root
            found = self._before.get(root.data_ptr())
            if found is None:
                return root
            was = found[1].view(root.shape)
            set_tag(was, Tag(derived_type(root)))
            return was
