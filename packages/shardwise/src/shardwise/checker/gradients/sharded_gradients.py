"""What do gradients owe that ``fully_shard`` hands out? Along its own axes nothing, along all others what was declared.

FSDP gathers a parameter, reduce-scatters its gradient over its own mesh, and keeps a DTensor of which only that mesh is
known. A norm weight that is replicate over tp still owes a sum over tp, so the local tensor inside carries a type.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Container, Iterable, Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import GradientOrigin
from shardwise.interop.tensors.dtensors import is_dtensor, local_part
from shardwise.interop.tensors.own_references import by_tensor
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_compat import (
    gathered_parameter,
    held_over_replicas,
    keeps_gradient,
    no_torch_function,
    sharded_parameter,
)
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import cut_along, exponent_over
from shardwise.types.placement import V
from shardwise.types.tensor_type import UNTYPED, Exponent, Ground, TensorType

from .gradient_types import NOWHERE, accumulated, dual

DECLARED = "_shardwise_declared"
"""Where an ``FSDPParam`` keeps the tag of the parameter that it was made of."""

DIVIDES = "_shardwise_divides"
"""Where it keeps by what its gradients are divided, if somebody has said so."""

SYNCHRONISES, ALL_REDUCES = "set_requires_gradient_sync", "set_requires_all_reduce"
"""The methods by which a program tells ``fully_shard`` to sum nothing yet, or nothing over replicas."""

_known: weakref.WeakSet[Any] = weakref.WeakSet()
_told: weakref.WeakSet[Any] = weakref.WeakSet()
_gathered: Any = by_tensor()
"""The axes over which FSDP has gathered a parameter that is a DTensor all the same."""


def note_gathered(parameter: torch.Tensor, axes: Iterable[MeshAxis]) -> None:
    """FSDP has gathered ``parameter``, a DTensor, over these axes, and will sum its gradient over them."""
    _gathered[parameter] = tuple(axes)


def gathered_over(parameter: torch.Tensor) -> tuple[MeshAxis, ...]:
    """The axes over which FSDP has gathered a DTensor; none if it has not."""
    with no_torch_function():
        return _gathered.get(parameter, ())  # type: ignore[no-any-return]


def note(fsdp_param: object, tag: Tag | None) -> None:
    """``fsdp_param`` has been made of a parameter with this tag."""
    setattr(fsdp_param, DECLARED, tag)
    _known.add(fsdp_param)


def type_sharded(reached: Container[int], root: Mapping[MeshAxis, Exponent] = NOWHERE) -> None:
    """Type the gradients of the parameters that were gathered as one of the leaves ``reached`` (by id).

    ``root``  the scale of what the backward pass starts from.
    """
    for fsdp_param in list(_known):
        tag: Tag | None = getattr(fsdp_param, DECLARED, None)
        gathered, (kept, mesh) = gathered_parameter(fsdp_param), sharded_parameter(fsdp_param)
        if id(gathered) not in reached or not is_dtensor(kept) or kept.grad is None:
            continue
        local = local_part(kept.grad)
        before = tag_of(local)
        declared = UNTYPED if tag is None else tag.current()
        type = _scattered(declared, mesh, root, getattr(fsdp_param, DIVIDES, None))
        if type is not UNTYPED:
            after = accumulated(None if before is None else before.current(), type)
            set_tag(local, Tag(after, GradientOrigin(user_site(), kept)))


def may_hold_back(module: object) -> None:
    """``module`` has been told whether to sum its gradients over replicas."""
    _told.add(module)


def kept_back(parameters: Iterable[torch.Tensor]) -> dict[tuple[MeshAxis, str], list[torch.Tensor]]:
    """Those of ``parameters`` whose gradients ``fully_shard`` holds, by the axes over which it owes sums and by the
    method that told it to.
    """
    asked = {id(parameter): parameter for parameter in parameters}
    owed: dict[int, list[tuple[MeshAxis, str]]] = {}
    for module in list(_told):
        for kept, mesh in map(sharded_parameter, held_over_replicas(module)):  # a mesh of replicas and shards
            if id(kept) in asked:  # another's mesh may be of process groups that have been destroyed
                owed[id(kept)] = [(MeshAxis.of(mesh.get_all_groups()[0]), ALL_REDUCES)]
    for kept, mesh in map(sharded_parameter, filter(keeps_gradient, list(_known))):
        if id(kept) in asked:
            owed[id(kept)] = [(axis, SYNCHRONISES) for axis in map(MeshAxis.of, mesh.get_all_groups())]
    found: dict[tuple[MeshAxis, str], list[torch.Tensor]] = {}
    for key, parameter in asked.items():
        for axis, method in owed.get(key, ()):
            if axis.size() > 1:
                found.setdefault((axis, method), []).append(parameter)
    return found


def divided_by(parameters: Iterable[object], factor: float) -> None:
    """FSDP divides the gradients of these sharded parameters by ``factor``, and not by the number of ranks.

    NaN: by what nobody knows, as where the program brings its own way to reduce.
    """
    ids = {id(parameter) for parameter in parameters}
    for fsdp_param in list(_known):
        if id(sharded_parameter(fsdp_param)[0]) in ids:
            setattr(fsdp_param, DIVIDES, factor)


def divides_in_its_own_way(reached: Container[int]) -> bool:
    """Has the program told FSDP how to divide gradients of what was gathered as one of the leaves ``reached`` (by id)?

    Then their sum need not be an average over the ranks.
    """
    told = [fsdp_param for fsdp_param in list(_known) if getattr(fsdp_param, DIVIDES, None) is not None]
    return any(id(gathered_parameter(fsdp_param)) in reached for fsdp_param in told)


def _scattered(
    declared: TensorType, mesh: DeviceMesh, root: Mapping[MeshAxis, Exponent], factor: float | None
) -> TensorType:
    """The gradient's type once FSDP has reduced and scattered it over ``mesh``, and divided it by ``factor``."""
    own = {axis for axis in map(MeshAxis.of, mesh.get_all_groups()) if axis.size() > 1}
    others = dual(declared, root) if declared.axes else UNTYPED
    if others.ground is not Ground.ABSENT:
        return UNTYPED
    # A factor is for all axes at once: whose share of it is whose is known where it is none or all.
    whole = math.prod(axis.size() for axis in own)
    power = -1 if factor in (None, whole) else 0 if factor == 1 else None
    scale = {axis: None if (e := exponent_over(axis, root)) is None or power is None else e + power for axis in own}
    for axis in own:
        others = cut_along(others, axis)
    rest = {axis: others.get(axis) for axis in others.axes if all(axis.isorthogonal(one) for one in own)}
    return TensorType.of({**dict.fromkeys(own, V), **rest}, scale={**others.scale, **scale})
