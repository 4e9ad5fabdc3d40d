"""Which ranks are run beside one, to compare what they have with what it has?"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.diagnostics.coverage import OwnData
from shardwise.diagnostics.result import RunResult
from shardwise.mesh.shape import MeshShape

from ..run import CheckOptions


def has_values(options: CheckOptions) -> bool:
    """Whether tensors have values that could be compared."""
    return options.device == "cpu" and not options.fake


def of_each_group(rank: int, data: Sequence[OwnData]) -> tuple[int, ...]:
    """This rank, and the next one of every group over which gradients are averaged."""
    ranks = {rank}
    for group in (group for one in data for group in one.groups):
        ranks.add(group[(group.index(rank) + 1) % len(group)])
    return tuple(sorted(ranks))


def of_each_axis(options: CheckOptions, result: RunResult) -> tuple[int, ...]:
    """This rank, and the next one along every axis of the mesh, of all ranks if there is none."""
    own = MeshShape.parse(result.own_mesh) if result.own_mesh else MeshShape((("", options.world_size),))
    ranks = {options.rank}
    for axis in (options.mesh or own).as_axes().values():
        fiber = axis.layout.fiber(options.rank)
        ranks.add(fiber[(fiber.index(options.rank) + 1) % len(fiber)])
    return tuple(sorted(ranks))


def size_with(ranks: Sequence[int], options: CheckOptions, result: RunResult) -> int:
    """How many ranks there are: where nobody has said it, the mesh of the program may have."""
    if not options.guessed or not result.own_mesh:
        return options.world_size
    return max(MeshShape.parse(result.own_mesh).ranks, *(rank + 1 for rank in ranks))
