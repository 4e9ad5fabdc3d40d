"""What do DTensor's rules say about a sharding? Asks its dispatch, along a mesh of one axis, for the sweep to compare.

An operator is admitted if it runs on the operands' placements as they are: a redistribution is a refusal, and tensors
without placements are not made replicate behind the caller's back. No byte moves: the group is PyTorch's fake one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from shardwise.interop.torch_compat import (
    decompositions_without_redistribution,
    fake_world,
    tree_leaves,
    without_redistribution,
)
from shardwise.types.placement import P, PerMeshAxisSpmdType, R, Shard

Answer = tuple[PerMeshAxisSpmdType | None, ...] | str


class DTensorBook:
    """DTensor's rules along ``mesh``."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh

    def ask(
        self,
        fn: Callable[..., Any],
        local: Sequence[torch.Tensor],
        placements: Sequence[PerMeshAxisSpmdType],
        whole: Sequence[torch.Tensor],
    ) -> tuple[Answer, list[torch.Tensor]]:
        """The placement of every result (None for one that our types cannot say), or why it is refused; and this
        rank's results, which are not always what the plain call gives: sizes in a call on DTensors are global.

        ``whole``  the global operands, for their shapes: shards may be uneven.
        """
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor.debug import CommDebugMode

        operands = [
            DTensor.from_local(
                tensor.detach(), self.mesh, [_to_dtensor(place)], run_check=False, shape=of.shape, stride=of.stride()
            )
            for tensor, place, of in zip(local, placements, whole, strict=True)
        ]
        try:
            with without_redistribution(), CommDebugMode() as traffic:  # type: ignore[no-untyped-call]
                results = fn(*operands)
        except Exception as error:  # whatever DTensor raises, it does not admit the call
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", []
        if traffic.get_total_counts():
            return "it communicates", []
        tensors = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
        answer = tuple(_from_dtensor(one) if isinstance(one, DTensor) else None for one in tensors)
        return answer, [one.to_local() if isinstance(one, DTensor) else one for one in tensors]


@contextmanager
def dtensor_book(size: int = 2) -> Iterator[DTensorBook]:
    """DTensor's rules along an axis of ``size`` ranks, of which this process is the first."""
    from torch.distributed.device_mesh import init_device_mesh

    with fake_world(0, size), decompositions_without_redistribution():
        yield DTensorBook(init_device_mesh("cpu", (size,)))


def _to_dtensor(place: PerMeshAxisSpmdType) -> Any:
    from torch.distributed.tensor import Partial, Replicate
    from torch.distributed.tensor import Shard as DShard

    if isinstance(place, Shard):
        return DShard(place.dim)
    return Partial() if place is P else Replicate()


def _from_dtensor(result: Any) -> PerMeshAxisSpmdType | None:
    placement = result.placements[0]
    if placement.is_replicate():
        return R
    if placement.is_shard() and type(placement).__name__ == "Shard":
        return Shard(placement.dim)
    if result.dtype is torch.bool:
        return None  # its sum of truth values is an or
    return P if placement.is_partial("sum") and type(placement).__name__ == "Partial" else None
