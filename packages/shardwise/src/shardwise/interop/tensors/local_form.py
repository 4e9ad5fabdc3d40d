"""What does this rank hold of a tensor, and of which type is it? Itself with its tag; of a DTensor the local tensor."""

from __future__ import annotations

from typing import Any

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import P, R, V
from shardwise.types.spec import PartitionSpec, make_entry
from shardwise.types.tensor_type import UNTYPED, TensorType

from ..torch_compat import is_strided_shard, no_torch_function
from .dtensors import is_dtensor
from .tagging import type_of


def local_form(x: torch.Tensor) -> tuple[torch.Tensor, TensorType]:
    """The local tensor and its type."""
    return local_tensor(x), _type_of_dtensor(x) if is_dtensor(x) else type_of(x)


def local_tensor(x: torch.Tensor) -> torch.Tensor:
    """The local tensor alone, which a DTensor has also when its process groups are gone."""
    if not is_dtensor(x):
        return x
    made: Any = x
    with no_torch_function(), torch.no_grad():
        return made.to_local()  # type: ignore[no-any-return]


def own_piece(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor | None:
    """What this rank holds of ``whole`` where it lies as ``like`` does, a DTensor; None of a pending sum."""
    made: Any = like
    piece = whole
    for strided in (False, True):  # as in the type
        for dim, placement in enumerate(made.placements):
            if placement.is_partial():
                return None
            cut = placement.is_shard() or is_strided_shard(placement)
            if not cut or is_strided_shard(placement) is not strided:
                continue
            pieces = piece.chunk(made.device_mesh.size(dim), placement.dim)
            at = made.device_mesh.get_local_rank(dim)
            piece = pieces[at] if at < len(pieces) else pieces[0].narrow(placement.dim, 0, 0)
    return piece


def _type_of_dtensor(x: Any) -> TensorType:
    if any(placement.is_partial() and not placement.is_partial("sum") for placement in x.placements):
        return UNTYPED
    placements: dict[MeshAxis, Any] = {}
    entries: list[list[MeshAxis]] = [[] for _ in range(x.ndim)]
    groups = x.device_mesh.get_all_groups()
    for strided in (False, True):  # a strided shard cuts what the later axes of the mesh have cut before
        for group, placement in zip(groups, x.placements, strict=True):
            axis = MeshAxis.of(group)
            if axis.size() == 1 or is_strided_shard(placement) is not strided:
                continue
            if strided or placement.is_shard():
                entries[placement.dim].append(axis)
                placements[axis] = V
            else:
                placements[axis] = P if placement.is_partial() else R
    spec = PartitionSpec(*(make_entry(axes) for axes in entries)) if any(entries) else None
    return TensorType.of(placements, spec)
