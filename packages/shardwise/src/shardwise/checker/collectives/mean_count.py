"""The count that a mean divides by: the global one, and one number for all ranks.

Where none is given, every rank counts its own elements, times the ranks named. That is the global count if every rank
has as many elements, and if the axes named are those over which the elements are cut: no more, or the mean comes out
too small, and no fewer, or it comes out too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_location
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.operand import Bound, sharded_dim
from shardwise.types.placement import UNKNOWN, Placement
from shardwise.types.tensor_type import TensorType

from ..diagnosis.collective_findings import (
    mean_by_own_counts,
    mean_counts_a_shard,
    mean_counts_addends,
    mean_over_uneven_shards,
)
from ..state.session import CheckSession


def check_given(session: CheckSession, type: TensorType, count: object) -> dict[MeshAxis, Placement]:
    """What the sum, of type ``type``, is along the axes over which ``count`` differs, which has been reported."""
    wrong: dict[MeshAxis, Placement] = {}
    for axis in type.axes:
        if not type.is_partial(axis) or not type_of(count).is_varying(axis):
            continue
        wrong[axis] = UNKNOWN
        located = LocatedCall("mean", [("count", count)])
        report(session, located, mean_by_own_counts(located.name(0), axis), axis)
    return wrong


def check_count(
    session: CheckSession,
    axes: Sequence[MeshAxis],
    bound: Sequence[Bound],
    values: Sequence[object],
    type: TensorType,
    *,
    even: bool,
) -> dict[MeshAxis, Placement]:
    """What the sum, of type ``type``, is along the axes for which the count would be wrong, which has been reported.

    ``axes`` are those named, ``even`` the promise that their shards have one length.
    """
    before = bound[0].type
    if not isinstance(before, TensorType):
        return {}
    wrong: dict[MeshAxis, Placement] = {}
    uneven = [axis for axis in axes if axis in before.uneven]
    if even and uneven and session.collector is not None:
        session.trust("mean(even=True)", user_location())

    def tell(axis: MeshAxis, say: Callable[..., Diagnosis], *how: object) -> None:
        wrong[axis] = UNKNOWN
        located = LocatedCall("mean", [("input", values[0])])
        report(session, located, say(located.name(0), axis, *how), axis)

    for axis in [] if even else uneven:
        tell(axis, mean_over_uneven_shards, sharded_dim(before, axis))
    for axis in axes:
        if before.is_partial(axis):
            tell(axis, mean_counts_addends)
    for axis in type.axes:
        if axis not in axes and type.is_partial(axis) and before.is_varying(axis):
            named = sorted((*axes, axis), key=lambda one: one.sort_key)
            tell(axis, mean_counts_a_shard, sharded_dim(before, axis), named)
    return wrong
