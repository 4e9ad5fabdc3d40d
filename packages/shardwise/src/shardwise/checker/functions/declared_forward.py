"""Does the forward of a function with a rule do what the rule says? Looked at once for each kind of call.

The collectives that it issues must run over the axes of those that the rule names. It is also run on simulated ranks:
what the rule calls equal there must be, and without collectives what it makes of addends and of shards must make up
what it makes of the whole. What cannot be run is believed, as the rule's author asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.autograd.forward_args import bind_forward_args, named_tensors
from shardwise.interop.calls.located_call import LocatedCall, describe_value, report
from shardwise.interop.running.recording import unheard
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transitions import MEETING
from shardwise.oracle.declared_locally import untrue_result
from shardwise.oracle.function_runs import FunctionRuns, NotRun
from shardwise.oracle.function_transition import forward_letters
from shardwise.oracle.simulated_ranks.identity import calls_ours, functions_behind, names_read
from shardwise.oracle.simulated_ranks.replay import RecordedCollectives
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, R, Shard, V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import Ground, TensorType

from ..diagnosis.function_findings import forward_line, not_as_ruled, not_issued, reads_varying, shown_function
from ..state.session import CheckSession
from .captured_tensors import captured_tensors
from .examination import examined
from .probed_functions import ANY, call_key, letters_of

_DIRECT = {"allreduce", "allgather", "alltoall", "alltoall_base", "_allgather_base", "reduce_scatter_base"}
"""Methods of process groups, which no mode sees."""
Step = tuple[str, Any, Any]
"""A collective or coercion of a rule: its name, its axis, its dst."""


@contextlib.contextmanager
def watched(
    session: CheckSession, cls: object, args: Sequence[object], before: Sequence[TensorType]
) -> Iterator[RecordedCollectives | None]:
    """Inside, the collectives of forward are noted; None if calls like this one have been looked at.

    ``before``  the types of the floating-point operands.
    """
    key = ("rule", call_key(cls, args), tuple(before))
    if key in session.probed or dist.group.WORLD is None or torch.compiler.is_compiling():
        yield None
        return
    session.probed[key] = None
    with RecordedCollectives() as seen:
        yield seen


def compare_forward(
    session: CheckSession,
    cls: type,
    args: Sequence[object],
    before: Sequence[TensorType],
    results: object,
    steps: Sequence[Step],
    seen: RecordedCollectives,
    *,
    draws: bool,
) -> None:
    """Report SW306 where the forward of ``cls`` is not what its rule says.

    ``before``  the types of the floating-point operands.
    ``steps``   what the rule says it is made of.
    ``seen``    what was issued.
    ``draws``   it has taken random numbers.
    """
    after = [type_of(x) for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    with examined(session):
        found = _captured(cls, after, steps) or _missing(cls, seen, before, after, steps)
        if found is None and seen.issued:
            found = _other(cls, args, seen, before, after, steps)
        elif found is None and not draws:
            found = _untrue(cls, args, before, after, steps)
    if found is None:
        return
    said, axis = found
    located = LocatedCall(cls.__name__, named_tensors(bind_forward_args(cls, args)))
    applied = shown_function(cls, ", ".join(map(describe_value, located.values)), located.location)
    located.location = forward_line(cls, seen.issued) or located.location
    report(session, located, said, axis, operands=(applied,))


def _missing(
    cls: type,
    seen: RecordedCollectives,
    before: Sequence[TensorType],
    after: Sequence[TensorType],
    steps: Sequence[Step],
) -> tuple[Diagnosis, object] | None:
    """A collective of the rule over an axis that forward does not communicate over."""
    functions = functions_behind(cls)
    direct = any(name in _DIRECT for one in functions for name in names_read(one.__code__))
    if seen.foreign or direct or calls_ours(cls, functions):
        return None
    meant = [(op, axis) for op, axis, _ in steps if op in MEETING]
    named = {axis for _, axis, _ in steps}
    summed = {axis for type in before for axis in type.partial_axes if axis not in named}
    meant += [
        ("a sum", axis) for axis in summed if after and all(axis in one and not one.is_partial(axis) for one in after)
    ]
    for op, axis in meant:
        if axis.size() > 1 and not any(one.axis <= axis or one.axis >= axis for one in seen.issued):
            return not_issued(cls, op, axis, seen.issued), axis
    return None


def _captured(cls: type, after: Sequence[TensorType], steps: Sequence[Step]) -> tuple[Diagnosis, object] | None:
    """A tensor from outside that varies where all results are equal, and the rule says nothing of an exchange."""
    named = {axis for _, axis, _ in steps}
    for name, tensor in captured_tensors(cls):
        type = type_of(tensor)
        for axis in type.axes:
            equal = after and all(one.is_equal(axis) for one in after)
            if equal and axis not in named and (type.is_varying(axis) or type.is_partial(axis)):
                return reads_varying(cls, axis, after[0].get(axis), name, type.get(axis)), axis
    return None


def _untrue(
    cls: type[torch.autograd.Function],
    args: Sequence[object],
    before: Sequence[TensorType],
    after: Sequence[TensorType],
    steps: Sequence[Step],
) -> tuple[Diagnosis, object] | None:
    """A result of a function without collectives that is not, of addends or of shards, what the rule says."""
    try:
        runs = FunctionRuns(cls, args, cls.apply, dist.get_rank())
    except NotRun:
        return None
    named = {axis for _, axis, _ in steps}
    for axis in dict.fromkeys(axis for type in before for axis in type.axes):
        given = [_placement(type, axis) for type in before]
        known = [one for one in given if one is not None]
        alone = any(not one.isorthogonal(axis) for one in named)
        if axis.size() == 1 or alone or len(known) != len(given) or not (set(known) - {R}):
            continue
        said = [_placement(type, axis) for type in after]
        at = untrue_result(runs, known, said)
        if at is not None:
            return not_as_ruled(cls, at, axis, said[at] or V), axis
    return None


def _placement(type: TensorType, axis: MeshAxis) -> PerMeshAxisSpmdType | None:
    """What two ranks along the axis have of a value, if that says what value it is: R, P, or the dim that is cut."""
    shard = partition_spec_get_shard(type.spec, axis)
    if type.ground is not Ground.ABSENT or axis not in type or type.exponent(axis) != 0:
        return None
    if shard is not None or type.is_equal(axis):
        return shard or R
    return P if type.get(axis) is P else None


def _other(
    cls: type[torch.autograd.Function],
    args: Sequence[object],
    seen: RecordedCollectives,
    before: Sequence[TensorType],
    after: Sequence[TensorType],
    steps: Sequence[Step],
) -> tuple[Diagnosis, object] | None:
    """A result that forward, run with operands as the rule takes them, does not make as the rule says."""
    axes = {one.axis for one in seen.issued if one.axis.size() > 1}
    if len(axes) != 1:
        return None
    (axis,) = axes
    known = [letters_of(type, axis) for type in before]
    if ANY in known or any(axis not in type for type in after):
        return None
    try:
        with unheard():
            made = forward_letters(FunctionRuns(cls, args, cls.apply, dist.get_rank()), axis, known)
    except NotRun:
        return None
    if made is None or len(made) != len(after):
        return None
    cut = any(op == "convert" and one is axis and (isinstance(dst, Shard) or dst is V) for op, one, dst in steps)
    for at, (letters, type) in enumerate(zip(made, after, strict=True)):
        own = letters_of(type, axis)
        if own == ANY:
            continue
        if own not in letters or (own == "V" and cut and "R" in letters):
            return not_as_ruled(cls, at, axis, PerMeshAxisLocalSpmdType(own)), axis
    return None
