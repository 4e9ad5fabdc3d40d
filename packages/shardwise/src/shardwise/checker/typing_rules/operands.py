"""What a type operator of a typing rule knows of its operand: its type on the current mesh, its name, and the mode."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.interop.running.session import current
from shardwise.interop.running.typing_rule_run import current_run, see
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, current_entry
from shardwise.mesh.regions import reinterpret as reinterpret_type
from shardwise.types.aliases import Axis
from shardwise.types.placement import UNKNOWN, Placement
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import Ground, TensorType

from .ndim import NdimWithSpmdType


def is_local_mode() -> bool:
    """True where shard dims are not followed: in the rule that runs, else in the running check, else always."""
    run = current_run()
    return run.local if run is not None else bool(getattr(current(), "local", True))


def is_strict() -> bool:
    """True if an operand must say something about every axis in play."""
    run = current_run()
    if run is not None:
        return run.strict
    session = current()
    return session is not None and session.strict


def is_global(axis: Axis) -> bool:
    """True if shard dims over ``axis`` are followed."""
    entry = current_entry()
    return not is_local_mode() and (entry is None or axis not in entry.local_axes)


def without_local_axes(spec: PartitionSpec | None) -> PartitionSpec | None:
    """What a result's spec keeps: nothing of the axes whose shard dims are not followed."""
    return None if spec is None else spec.without({a for a in spec.axes_with_partition_spec() if not is_global(a)})


def check_operand(x: object, op: str) -> None:
    """Note that the rule has seen ``x``. Errors: TypeError if it is neither a tensor nor a stand-in for one."""
    if not isinstance(x, (torch.Tensor, NdimWithSpmdType)):
        raise SpmdArgumentError(
            f"rules.{op} takes tensors and NdimWithSpmdType, got {shown(x)} of type {type(x).__name__}", code="SW304"
        )
    see(x)


def name_of(x: object, fallback: str) -> str:
    """What messages call ``x``: the argument of forward that it is, or what it came out of."""
    run = current_run()
    named = run.name_of(x) if run is not None else None
    return named or getattr(x, "described", "") or fallback


class OperandRefused(SpmdTypeError):
    """A rule meets an operand of another placement than it is for. SW305.

    ``name``   the operand as the rule calls it; ``axis`` along which it is ``found`` and not ``wanted``.
    """

    def __init__(
        self, message: str, name: str, axis: MeshAxis, found: Placement, wanted: Placement, *, help: tuple[str, ...]
    ) -> None:
        super().__init__(message, code="SW305", help=help)
        self.name, self.along, self.found, self.wanted = name, axis, found, wanted


def owner() -> str:
    """Whose rule is running, as the start of a message."""
    run = current_run()
    return f"the rule of {run.owner}" if run is not None else "this rule"


def can_receive_gradient(x: torch.Tensor) -> bool:
    """Nothing is known about what a stand-in stands for, so it counts as if it could."""
    return takes_gradient(x) and torch.is_grad_enabled()


def type_here(x: object, name: str, entry: CurrentMesh | None) -> TensorType:
    """The type of ``x`` as read on the current mesh. Errors: SW133 if its axes do not fit that mesh."""
    type = type_of(x)
    if entry is None or type.ground is not Ground.ABSENT or all(axis in entry.axes for axis in type.axes):
        return type
    try:
        return reinterpret_type(type, entry.axes)
    except SpmdTypeError as error:
        raise SpmdTypeError(
            f"{name} is not on the current mesh: {error.message}", code="SW133", help=error.help
        ) from None


def sorted_axes(axes: Iterable[MeshAxis]) -> list[MeshAxis]:
    """Outermost first."""
    return sorted(axes, key=lambda axis: axis.sort_key)


def is_unknown(type: TensorType, axis: MeshAxis) -> bool:
    return type.ground is Ground.UNKNOWN or type.get(axis) is UNKNOWN
