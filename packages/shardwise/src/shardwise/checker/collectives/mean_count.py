"""The count that a mean divides by: the global one, and one number for all ranks.

Where none is given, every rank counts its own elements, times the ranks named. That is the global count if every rank
has as many elements, and if the axes named are those over which the elements are cut: no more, or the mean comes out
too small, and no fewer, or it comes out too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import user_location
from shardwise.interop.located_call import LocatedCall, axis_text, report
from shardwise.interop.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.operand import Bound, sharded_dim
from shardwise.types.placement import UNKNOWN, Placement
from shardwise.types.tensor_type import TensorType

from ..diagnosis.sharding_refusals import assert_even
from ..state.session import CheckSession


def check_given(session: CheckSession, type: TensorType, count: Any) -> dict[MeshAxis, Placement]:
    """What the sum, of type ``type``, is along the axes over which ``count`` differs, which has been reported."""
    wrong: dict[MeshAxis, Placement] = {}
    for axis in type.axes:
        if not type.is_partial(axis) or not type_of(count).is_varying(axis):
            continue
        wrong[axis] = UNKNOWN
        located = LocatedCall("mean", [("count", count)])
        name, along = located.name(0), axis_text(axis)
        message = f"mean divides a pending sum over {along} by {name}, which differs per rank there"
        fact = "addends that are divided by numbers of their own do not add up to a mean over all ranks"
        help_lines = (f"all_reduce({name}, {axis_argument(axis)}, src=V, dst=R) before mean, for the global count",)
        report(session, located, Diagnosis("SW110", message, (fact,), help_lines), axis)
    return wrong


def check_count(
    session: CheckSession,
    axes: Sequence[MeshAxis],
    bound: Sequence[Bound],
    values: Sequence[Any],
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
    ways: tuple[str, ...]
    uneven = [axis for axis in axes if axis in before.uneven]
    if even and uneven and session.collector is not None:
        session.trust("mean(even=True)", user_location())
    for axis in [] if even else uneven:
        wrong[axis] = UNKNOWN
        dim = sharded_dim(before, axis)
        located = LocatedCall("mean", [("input", values[0])])
        name, along = located.name(0), axis_text(axis)
        message = f"mean counts the elements of every rank like its own, but shards of {name} over {along} may differ"
        fact = "give the global count, summed over the ranks, or promise that all have as many elements"
        ways = (
            f"mean({name}, ..., count=n) with n the global count, R over {along}",
            "mean(..., even=True), or " + assert_even(name, axis, dim),
        )
        report(session, located, Diagnosis("SW417", message, (fact,), ways), axis)
    for axis in axes:
        if before.is_partial(axis):
            wrong[axis] = UNKNOWN
            located = LocatedCall("mean", [("input", values[0])])
            name, along = located.name(0), axis_text(axis)
            message = f"mean would count the elements of {name} once per rank of {along}, where they are a pending sum"
            fact = f"{name} has one addend per rank and each has all elements: the mean is too small by {axis.size()}"
            ways = (f"mean({name}, ...) without {axis_argument(axis)}: a mean of addends is pending by itself",)
            report(session, located, Diagnosis("SW135", message, (fact,), ways), axis)
    for axis in type.axes:
        if axis not in axes and type.is_partial(axis) and before.is_varying(axis):
            wrong[axis] = UNKNOWN
            located = LocatedCall("mean", [("input", values[0])])
            name, along = located.name(0), axis_text(axis)
            message = f"mean counts this rank's elements of {name} (dim {sharded_dim(before, axis)}) over {along} only"
            fact = f"the dim is cut over {along}, which is not named"
            named = [axis_argument(one) for one in sorted((*axes, axis), key=lambda one: one.sort_key)]
            listed = named[0] if len(named) == 1 else f"({', '.join(named)})"
            ways = (f"mean({name}, ..., out_partial_axes={listed})", f"mean({name}, ..., count=n)")
            report(session, located, Diagnosis("SW403", message, (fact,), ways), axis)
    return wrong
