"""How do the ranks hold a parameter, and so its gradient: equal everywhere, or a piece each?

What is declared answers: the type that a parameter carries, or a DTensor's placements. Not what the checker has seen
of its gradient, because a step has to do the same with checking off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shardwise.interop.communication.process_groups import communicator
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import is_strided_shard
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import current_entry
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import Placement, R, V
from shardwise.types.tensor_type import Ground


@dataclass(frozen=True, slots=True)
class ParameterPieces:
    """What a parameter is along mesh axes.

    ``places``  axis -> R, I or V; a DTensor's Replicate is R. An axis that is not there is not declared.
    ``groups``  the process groups that the parameter itself knows, as a DTensor does.
    """

    places: Mapping[MeshAxis, Placement]
    groups: Mapping[MeshAxis, Any]

    @property
    def split(self) -> frozenset[MeshAxis]:
        """The axes along which every rank has a piece of its own."""
        return frozenset(axis for axis, place in self.places.items() if place.is_varying)

    def undeclared(self, axes: Iterable[MeshAxis]) -> list[MeshAxis]:
        """Those of ``axes`` that nothing is declared along, neither as they are nor under another cut of the ranks."""
        return [axis for axis in axes if all(axis.isorthogonal(own) for own in self.places)]


def is_piece(placement: Any) -> bool:
    """Whether a DTensor placement cuts the tensor, in whatever order."""
    return bool(placement.is_shard()) or is_strided_shard(placement)


def pieces_of(parameter: Tensor) -> ParameterPieces:
    """What ``parameter`` says of itself: its type, and over that its placements if it is a DTensor."""
    declared = type_of(parameter)
    places: dict[MeshAxis, Placement] = {}
    groups: dict[MeshAxis, Any] = {}
    if declared.ground is Ground.ABSENT:
        # The gradient of a partial parameter is replicate.
        places.update({axis: place.dual if place.is_partial else place for axis, place in declared.local.items()})
    if is_dtensor(parameter):
        for group, placement in zip(
            parameter.device_mesh.get_all_groups(),  # type: ignore[attr-defined]
            parameter.placements,  # type: ignore[attr-defined]
            strict=True,
        ):
            axis = MeshAxis.of(group)
            if axis.size() > 1:
                places[axis] = V if is_piece(placement) else R
                groups[axis] = group
    return ParameterPieces(places, groups)


def pending_in(gradient: Tensor) -> list[MeshAxis]:
    """The axes along which a gradient that is a DTensor is Partial; for other tensors none."""
    if not is_dtensor(gradient):
        return []
    axes = map(MeshAxis.of, gradient.device_mesh.get_all_groups())  # type: ignore[attr-defined]
    placed = zip(axes, gradient.placements, strict=True)  # type: ignore[attr-defined]
    return [axis for axis, placement in placed if placement.is_partial() and axis.size() > 1]


def local_gradient(parameter: Tensor) -> Tensor | None:
    """What this rank holds of ``parameter.grad``, as plain numbers; None if there is none."""
    gradient = parameter.grad
    if gradient is None:
        return None
    if is_dtensor(gradient):
        gradient = gradient.to_local()  # type: ignore[attr-defined]
    if gradient.layout is torch.sparse_coo:
        parameter.grad = gradient.coalesce()  # the same value, of which every entry is there once
        gradient = parameter.grad.values()
    return gradient


def group_along(axis: MeshAxis, known: Mapping[MeshAxis, DeviceMeshAxis]) -> object:
    """The process group of ``axis``: of those ``known``, of the current mesh, or of one that this hides.

    Errors: SW211 if there is none.
    """
    if axis in known:
        return communicator(known[axis]).group
    entry = current_entry()
    while entry is not None and axis not in entry.groups:
        entry = entry.outer
    return communicator(axis if entry is None else entry.groups[axis]).group


def outermost_first(axes: Iterable[MeshAxis]) -> list[MeshAxis]:
    """In an order that is the same on every rank."""
    return sorted(axes, key=lambda axis: axis.sort_key)
