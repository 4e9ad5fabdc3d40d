"""What does a tensor say it is? Questions that work anywhere, with checking on or off, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeVar

import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_site
from shardwise.interop.calls import tracing
from shardwise.interop.calls.boundary import boundary
from shardwise.interop.calls.located_call import LocatedCall
from shardwise.interop.running import session
from shardwise.interop.tensors.tagging import tag_of, told_type, type_of, typed_shape
from shardwise.mesh.normalize import normalize_axis
from shardwise.types.aliases import Axis, DeviceMeshAxis
from shardwise.types.notation import TypedShape
from shardwise.types.placement import PerMeshAxisLocalSpmdType
from shardwise.types.spec import PartitionSpec

T = TypeVar("T")


def get_local_type(x: object) -> Mapping[Axis, PerMeshAxisLocalSpmdType]:
    """R, I, V or P per annotated axis, read-only; empty if ``x`` has no type.

    Example:
        >>> get_local_type(assert_type(torch.ones(4), {"dp": S(0), "tp": R}))
        {dp: V, tp: R}
    """
    return type_of(x).local


@boundary
def get_axis_local_type(x: object, axis: DeviceMeshAxis) -> PerMeshAxisLocalSpmdType:
    """R, I, V or P on ``axis``. Errors: SW103 (a ValueError) if ``x`` has no type there.

    Example:
        >>> get_axis_local_type(assert_type(torch.ones(4), {"tp": S(0)}), "tp")
        V
    """
    place = maybe_get_axis_local_type(x, axis)
    if place is None:
        known = ", ".join(map(repr, type_of(x).local)) or "none"
        raise SpmdValueError(
            f"the tensor has no type on axis {normalize_axis(axis)!r}; its axes are: {known}", code="SW103"
        )
    return place


@boundary
def maybe_get_axis_local_type(x: object, axis: DeviceMeshAxis) -> PerMeshAxisLocalSpmdType | None:
    """R, I, V or P on ``axis``; None if ``x`` has no type there.

    Example:
        >>> with no_typecheck():
        ...     x = torch.ones(4)
        >>> maybe_get_axis_local_type(x, "tp")
    """
    return type_of(x).local.get(normalize_axis(axis))


def has_local_type(x: object) -> bool:
    """True if ``x`` was annotated or computed under the checker, even if no axis is known.

    Example:
        >>> with no_typecheck():
        ...     made_unchecked = torch.ones(4)
        >>> has_local_type(made_unchecked), has_local_type(assert_type(torch.ones(4), R))
        (False, True)
    """
    return tag_of(x) is not None


def get_partition_spec(x: object) -> PartitionSpec | None:
    """Which axes shard which dim; None if nothing is known to be sharded.

    Behind a collective that was followed globally, and sharded no dim, it is a spec that says so.

    Example:
        >>> get_partition_spec(assert_type(torch.ones(4, 8), {"tp": S(1)}))
        PartitionSpec(None, tp)
    """
    tag = tag_of(x)
    if tag is None:
        return None
    type = tag.current()
    if type.spec is None and isinstance(x, torch.Tensor):
        origins = tag.origin if isinstance(tag.origin, tuple) else (tag.origin,)
        if any(origin is not None and origin.sharding for origin in origins):
            return PartitionSpec(*(None,) * x.ndim)
    return told_type(x).spec


def typeof(x: object) -> TypedShape:
    """The full type of ``x``; printed it reads ``f32[8, 16@tp] {dp: R}``.

    Example:
        >>> print(typeof(assert_type(torch.ones(4, 8), {"dp": S(0), "tp": P})))
        f32[4@dp, 8] {tp: P}
    """
    return typed_shape(x)


def reveal_type(x: T) -> T:
    """Tell the place and the full type of ``x``, and where it got it: SW922, of severity note. Returns ``x``.

    Where findings are not collected it is printed, as ``model.py:88: x: f32[8, 16@tp] {dp: R}``.

    Example:
        >>> x = assert_type(torch.ones(4), {"tp": R})
        >>> y = reveal_type(x)
        <...>:1: x: f32[4] {dp: R, tp: R}
    """
    if session.erased or torch.compiler.is_compiling():
        return x
    located = LocatedCall("reveal_type", [("x", x)])
    name, running = located.name(0), session.current()
    if running is not None and running.collector is not None:
        said = Diagnosis("SW922", f"{name} is {typeof(x)}").at(located.location, located.op, operands=located.shown())
        running.tell(said)
    else:
        sys.stdout.write(f"{tracing.location(user_site())}: {name}: {typeof(x)}\n")
    return x
