"""What the numbers of an autograd function leave open: does it average gradients, is it a step of a ring?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transition_types import parts_of
from shardwise.oracle.function_typings import FunctionTransition
from shardwise.types.placement import I, R
from shardwise.types.tensor_type import Ground, TensorType

from ..parts.passed_pieces import note_passed
from ..state.session import CheckSession
from .named_calls import sends_to_one

_SUMMING = ("reduce_scatter", "_reduce_scatter", "all_reduce")


def note_neighbours(
    session: CheckSession, cls: type[torch.autograd.Function], args: Sequence[object], types: Sequence[TensorType]
) -> None:
    """What ``cls`` is called with goes to a neighbour, if ``cls``, or what it calls, names what sends to one rank.

    ``types``  of the operands.
    """
    if session.local:
        return
    if sends_to_one(cls, args):
        for axis in {one for type in types for one in type.varying_axes}:
            if isinstance(axis, MeshAxis):
                note_passed(session, axis, [x for x in args if isinstance(x, torch.Tensor)])


def read_openly(
    session: CheckSession,
    found: FunctionTransition,
    axis: MeshAxis,
    args: Sequence[object],
    types: Sequence[TensorType],
) -> Sequence[TensorType]:
    """The types of results, where those that are invariant may as well be replicate with gradients that are averaged.

    A function that gathers a weight and averages its gradient reads like one computation of all ranks whose backward
    sums what is equal. It is as right where every rank goes on with data of its own, and with a mean of its own.
    """
    if not any(one.name.startswith(_SUMMING) for one in found.backward):
        return types
    read = [_equal_at_some_scale(type, axis) for type in types]
    if read != list(types) and not session.local:
        for x in args:
            if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf:
                session.kept_elsewhere[x] = True
    return read


def _equal_at_some_scale(type: TensorType, axis: MeshAxis) -> TensorType:
    """``type``, where it is invariant along ``axis``, as a replicate one whose gradients have an unknown scale."""
    if type.ground is not Ground.ABSENT:
        return type
    parts = [one for one in parts_of(axis, type) if type.get(one) is I]
    return type.with_placements(dict.fromkeys(parts, R)).rescaled(dict.fromkeys(parts)) if parts else type
