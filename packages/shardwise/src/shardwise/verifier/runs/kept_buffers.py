"""Buffers of modules that train: what is in them when their outermost module is called first, and at the end."""

from __future__ import annotations

import torch

from shardwise.interop.running.recording import has_values
from shardwise.interop.running.wrappers import plain_class, plain_name
from shardwise.interop.tensors.bits import digest_of
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.torch_compat import no_torch_function

from ..records.annotation_sites import STATISTICS
from ..records.record import BufferEnds

LARGEST = 1 << 14
"""Of buffers with more elements nothing is kept: tables of positions, caches."""


class KeptBuffers:
    """Statistics of what a rank has normalised are left out: the outputs tell of them."""

    def __init__(self) -> None:
        self._seen: dict[int, torch.nn.Module] = {}  # kept: a program's modules may be gone at the end
        self._kept: dict[str, tuple[torch.nn.Module, str, torch.Tensor, frozenset[bytes]]] = {}

    def keep(self, outermost: torch.nn.Module) -> None:
        """What is in the buffers of this module and of those inside, if it is called for the first time."""
        if id(outermost) in self._seen:
            return
        self._seen[id(outermost)] = outermost
        with no_torch_function(), torch.no_grad():
            parents = {child: parent for parent in outermost.modules() for child in parent.children()}
            for path, owner in outermost.named_modules():
                for name, buffer in () if isinstance(owner, STATISTICS) else owner.named_buffers(recurse=False):
                    called = plain_name(f"{path}.{name}" if path else name)
                    called = f"{plain_class(owner)}.{name}" if called == name else called
                    if called not in self._kept and _may_be_kept(buffer):
                        self._kept[called] = owner, name, buffer.detach().clone().cpu(), _weights(owner, parents)

    def ends(self) -> dict[str, BufferEnds]:
        """By name, what the buffers that have changed held and hold."""
        found: dict[str, BufferEnds] = {}
        with no_torch_function(), torch.no_grad():
            for called, (owner, name, before, weights) in self._kept.items():
                after = getattr(owner, name, None)
                if not isinstance(after, torch.Tensor) or not _may_be_kept(after):
                    continue
                after = after.detach().clone().cpu()
                if after.shape != before.shape or not torch.equal(after, before):
                    found[called] = BufferEnds(before, after, weights)
        return found


def _may_be_kept(buffer: torch.Tensor) -> bool:
    return not is_dtensor(buffer) and 0 < buffer.numel() <= LARGEST and has_values(buffer)


def _weights(owner: torch.nn.Module, parents: dict[torch.nn.Module, torch.nn.Module]) -> frozenset[bytes]:
    """Digests of the parameters of a module, or of the nearest around it that has some, but of constants."""
    found = frozenset(
        digest_of(weight)
        for weight in owner.parameters()
        if not is_dtensor(weight) and has_values(weight) and weight.numel() and (weight != weight.flatten()[0]).any()
    )
    return found if found or owner not in parents else _weights(parents[owner], parents)
