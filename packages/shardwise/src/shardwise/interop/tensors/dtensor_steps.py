"""What DTensor's ``redistribute`` would do for a move between whole types, by its own planner, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import P
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import TensorType

from ..torch_compat import fake_world, redistribution_steps


@dataclass(frozen=True, slots=True)
class DTensorStep:
    """One step: the op, the mesh axis, and the elements of a rank before it, as ``planner.cost`` counts them."""

    op: str
    axis: MeshAxis
    elements: int


class NotSaidInDTensor(ValueError):
    """A type that no placements of DTensor say."""


Steps = Callable[[tuple[int, ...], str, TensorType, TensorType], list[DTensorStep]]


@contextmanager
def dtensor_steps(axes: tuple[MeshAxis, ...]) -> Iterator[Steps]:
    """A function from global shape, dtype and two types to the steps, over a mesh of ``axes``, outermost first.

    Inside, this process is the first rank of a world in which there is no other. R and I are both Replicate.
    Errors: NotSaidInDTensor, where the function is called.
    """
    sizes = tuple(axis.size() for axis in axes)
    with fake_world(0, math.prod(sizes)):
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=tuple(f"axis{at}" for at in range(len(sizes))))

        def steps(shape: tuple[int, ...], dtype: str, src: TensorType, dst: TensorType) -> list[DTensorStep]:
            before, after = (tuple(_placement(type, axis) for axis in axes) for type in (src, dst))
            try:
                infos = redistribution_steps(mesh, shape, getattr(torch, dtype), before, after)
            except RuntimeError as error:
                raise NotSaidInDTensor(str(error).partition("\n")[0]) from None
            cut = [list(entry_axes(entry)) for entry in src.spec or (None,) * len(shape)]
            return [_step(axes[at], one, other, shape, cut) for at, one, other in infos]

        yield steps


def _placement(type: TensorType, axis: MeshAxis) -> Placement:
    place = type.get(axis)
    for dim, entry in enumerate(type.spec or ()):
        cutting = entry_axes(entry)
        if axis in cutting:
            if list(cutting) != sorted(cutting, key=lambda one: one.sort_key):
                raise NotSaidInDTensor(f"placements cannot say that dim {dim} is cut by {cutting[0]!r} first")
            return Shard(dim)
    exponent = type.exponent(axis)
    if place is P and exponent == 1:
        return Partial("avg")
    if exponent:
        raise NotSaidInDTensor(f"placements cannot say that a value is too large by a power of {axis!r}'s size")
    if place.is_equal:
        return Replicate()
    if place.is_partial:
        return Partial({"P(max)": "max", "P(min)": "min"}.get(str(place), "sum"))
    raise NotSaidInDTensor(f"placements cannot say {place!r} over {axis!r}")


def _step(
    axis: MeshAxis, before: Placement, after: Placement, whole: tuple[int, ...], cut: list[list[MeshAxis]]
) -> DTensorStep:
    """The step; ``cut`` has the axes that cut each dim of the ``whole``, and is brought up to date."""
    shape = [_length(length, axes) for length, axes in zip(whole, cut, strict=True)]
    if isinstance(before, Shard):
        cut[before.dim].remove(axis)
    if isinstance(after, Shard):
        cut[after.dim].append(axis)
        if not before.is_replicate():  # padded to equal pieces
            shape[after.dim] = -(-shape[after.dim] // axis.size()) * axis.size()
    if isinstance(before, Shard):
        op = "all_to_all" if isinstance(after, Shard) else "all_gather" if after.is_replicate() else "convert"
    elif before.is_partial():
        op = "reduce_scatter" if isinstance(after, Shard) else "all_reduce"
    else:
        op = "convert"
    return DTensorStep(op, axis, math.prod(shape))


def _length(length: int, axes: list[MeshAxis]) -> int:
    """What the first rank holds."""
    for axis in axes:
        length = -(-length // axis.size())
    return length
