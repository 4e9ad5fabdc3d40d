"""How do types cross into DTensor and out of it? By the placements, which say per mesh dim what a local tensor is.

Operators between DTensors are their own business. ``from_local`` is told what its operand is, so a typed operand must
be that; ``to_local`` gives what the placements say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.calls.located_call import LocatedCall, axis_text, placement_text, report
from shardwise.interop.running.recording import placed_alike
from shardwise.interop.tensors.dtensors import local_part
from shardwise.interop.tensors.tagging import Origin, Tag, alias, set_tag, tag_of, type_of
from shardwise.interop.torch_compat import is_strided_shard
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument, sharding_axes
from shardwise.op_rules.transition_types import landed
from shardwise.types.placement import (
    UNKNOWN,
    I,
    P,
    PerMeshAxisLocalSpmdType,
    PerMeshAxisSpmdType,
    Placement,
    R,
    Shard,
    V,
)
from shardwise.types.spec import PartitionSpec, entry_axes, partition_spec_get_shard
from shardwise.types.tensor_type import Ground, TensorType

from ..gradients.sharded_gradients import gathered_over
from ..state.session import CheckSession


def enter(session: CheckSession, args: Sequence[Any]) -> None:
    """Check the operand of ``DTensor.from_local`` against the placements that it is given."""
    local, mesh, placements = args[:3]
    grads = (args[6] if len(args) > 6 else None) or [None] * len(placements)
    alike = [axis for axis, placement in zip(_axes(mesh), placements, strict=True) if placement.is_replicate()]
    placed_alike(local, alike, "from_local")
    type = type_of(local)
    if type.ground is not Ground.ABSENT:
        return
    differentiable = local.requires_grad and torch.is_grad_enabled()
    for axis, placement, grad in zip(_axes(mesh), placements, grads, strict=True):
        place, want = type.get(axis), _placed(placement, grad)
        known = partition_spec_get_shard(type.spec, axis)
        if known is not None and placement.is_shard() and known.dim != placement.dim % local.ndim:
            _refuse(session, local, axis, placement, known, want)
        if placement.is_partial() and want is None and place is not None and place.is_partial:
            _refuse(session, local, axis, placement, place, want)  # an average or a product of what is pending
        if place in (None, UNKNOWN, want) or want is None or axis.size() == 1:
            continue
        if ({place, want} == {R, I} and not differentiable) or (want.is_partial and place.is_varying):
            continue  # equal bits; addends or candidates that nobody has called so yet
        if want.is_extremum and place.is_equal:
            continue  # the largest of equal values is each of them
        _refuse(session, local, axis, placement, place, want)


def leave(session: CheckSession, args: Sequence[Any], result: object) -> None:
    """Type the result of ``DTensor.to_local``."""
    if not isinstance(result, torch.Tensor) or tag_of(result) is not None:
        return
    dtensor, grads = args[0], args[1] if len(args) > 1 else None
    held = tag_of(local_part(dtensor))
    if held is not None and gradient_origin(held) is not None:
        # Its placements say nothing of the other axes, its history does.
        type = held.current()
        if not session.local and type.spec is None and type.varying_axes:
            spec = _spec(dtensor, result.ndim)
            if spec is not None and set(sharding_axes(spec)) == set(type.varying_axes):
                type = type.with_spec(spec).with_uneven(_uneven(dtensor, spec))
        alias(result, local_part(dtensor), type, held.origin)
        return
    placements = dtensor.placements
    places: dict[MeshAxis, Placement] = {
        axis: place
        for axis, placement, grad in zip(
            _axes(dtensor.device_mesh), placements, grads or [None] * len(placements), strict=True
        )
        if axis.size() > 1 and (place := _placed(placement, grad)) is not None
    }
    places |= {axis: R for axis in gathered_over(dtensor) if places.get(axis, I) is I}
    if places:
        # What became of the other axes among DTensors, nobody has followed.
        mesh = current_entry()
        spec = None if session.local else _spec(dtensor, result.ndim)
        places = {**dict.fromkeys(mesh.axes if mesh is not None else (), UNKNOWN), **places}
        type = TensorType.of(places, spec, uneven=() if spec is None else _uneven(dtensor, spec))
        set_tag(result, Tag(type, Origin(user_site(), "as its placements say, since to_local")))


def _spec(dtensor: Any, ndim: int) -> PartitionSpec | None:
    """Which dims are sharded, outermost axis first, as DTensor cuts them."""
    spec = None
    for axis, placement in zip(_axes(dtensor.device_mesh), dtensor.placements, strict=True):
        if axis.size() > 1 and placement.is_shard():
            spec = landed(spec, ndim, (axis,), Shard(placement.dim))
    return spec


def _uneven(dtensor: torch.Tensor, spec: PartitionSpec) -> set[object]:
    """The axes that cut a dim whose size they do not divide: DTensor's last shards are shorter, or empty."""
    cuts = zip(dtensor.shape, map(entry_axes, spec), strict=True)
    return {axis for size, axes in cuts if size % math.prod(axis.size() for axis in axes) for axis in axes}


def _axes(mesh: DeviceMesh) -> list[MeshAxis]:
    return [MeshAxis.of(group) for group in mesh.get_all_groups()]


_PENDING: dict[str, PerMeshAxisLocalSpmdType] = {"sum": P, "max": P("max"), "min": P("min")}


def _placed(placement: Any, grad: Any) -> PerMeshAxisLocalSpmdType | None:
    """The local type that a placement stands for; None if there is none. DTensor keeps replicated gradients equal."""
    if placement.is_shard() or is_strided_shard(placement):
        return V
    if placement.is_replicate():
        return R if grad is not None and grad.is_partial() else I
    return _PENDING.get(getattr(placement, "reduce_op", ""))


def _refuse(
    session: CheckSession, local: object, axis: MeshAxis, placement: object, place: PerMeshAxisSpmdType, want: Any
) -> None:
    located = LocatedCall("from_local", [("local_tensor", local)])
    name, along = located.name(0), axis_text(axis)
    message = f"from_local reads {name} as {placement!r} over {along}, but it is {placement_text(place)}"
    facts: tuple[str, ...] = ()
    help_lines: tuple[str, ...] = ()
    if place is R and want is I:
        facts = ("DTensor gives each rank the whole gradient, and that of a replicate tensor is summed over the ranks",)
        help_lines = ("from_local(..., grad_placements=...) with Partial() there",)
    elif want is None or (place.is_partial and want.is_partial):
        facts = (f"what is pending over {along} is finished by {place.reduction} and by nothing else",)
    elif place.is_partial and want.is_equal:
        help_lines = (f"all_reduce({name}, {axis_argument(axis)}, src=P, dst={want!r}) first",)
    elif place is I and want is R:
        help_lines = (f"convert({name}, {axis_argument(axis)}, src=I, dst=R) first",)
    report(session, located, Diagnosis("SW130", message, facts, help_lines), axis)
