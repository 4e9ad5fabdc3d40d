"""What is the verdict on one call of an operator? Its operands are bound to their roles and propagation is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import is_pieced, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords
from shardwise.mesh.entry import current_entry
from shardwise.op_rules.propagation.call_types import NO_CALL, Outcome, propagate
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.shape_templates import GIVES_SHAPE, shaped
from shardwise.types.placement import UNKNOWN
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import TensorType

from ..call.arguments import Op
from ..parts.own_parts import own_parts, shifted_positions
from ..propagation.foreign_mesh import judged_elsewhere
from ..state.numbers import RepeatedList
from ..state.session import CheckSession
from ..writes.gradient_writes import OVERWRITING
from .given_sizes import COPIES, JOINING, cut_copies, cut_like_memory, cut_repeated, cuts_of, sizes_of_call

READING = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, MemoryError)
"""What a rule raises on arguments that it was not written for: text for a dim, a dim that is not there."""

FOREIGN_MESH = "SW133"


class UnreadableArguments(Exception):
    """The rule of the operator ``op`` cannot read the arguments of a call, which has not run yet."""

    def __init__(self, op: str) -> None:
        super().__init__(f"the op rule of {op} cannot read these arguments")
        self.op = op


def judge(
    session: CheckSession,
    op: Op,
    args: Arguments,
    kwargs: Keywords,
    types: Mapping[int, TensorType] | None = None,
) -> tuple[list[Bound], list[object], Outcome, str | None]:
    """The operands, their values, the outcome, and why the linear law is blocked (None: it is not).

    ``types``  of the values with these ids, where only a part of them is meant.
    Errors: UnreadableArguments.
    """
    try:
        return _judge(session, op, args, kwargs, types)
    except SpmdTypeError:
        raise
    except READING as error:
        raise UnreadableArguments(op.name) from error


def _judge(
    session: CheckSession,
    op: Op,
    args: Arguments,
    kwargs: Keywords,
    types: Mapping[int, TensorType] | None,
) -> tuple[list[Bound], list[object], Outcome, str | None]:
    operands, values = op.bind(args, kwargs)
    mesh, strict = current_entry(), session.strict
    if types:
        operands = [replace(o, type=types.get(id(value), o.type)) for o, value in zip(operands, values, strict=True)]
    if not session.local:
        mapped = frozenset[object]() if mesh is None else mesh.mapped_axes
        operands = [
            replace(o, type=_unsharded(o.type, mapped)) if isinstance(o.type, TensorType) and _is_bucket(value) else o
            for o, value in zip(operands, values, strict=True)
        ]
    blocked, scope, call = None, None, NO_CALL
    guard = op.rule.guard
    if guard is not None and any(isinstance(o.type, TensorType) and o.type.partial_axes for o in operands):
        blocked = guard(op.static(args, kwargs, operands, values))
    if session.local:
        outcome = propagate(op.rule, operands, mesh, strict, blocked=blocked)
    else:
        scope, call = session.scope(mesh), op.labelled(args, kwargs, operands)
        if op.slices and any(operand.number is not None for operand in operands):
            scope = replace(scope, own=own_parts(op, args, kwargs))
        own = shifted_positions(values) if op.rule.op == "add" and not op.in_place else None
        if own:
            scope = replace(scope, own=own)
        outcome = propagate(op.rule, operands, mesh, strict, blocked=blocked, scope=scope, call=call)
        if own is not None:
            outcome = replace(outcome, by_value=True)
        if op.templates and op.name in GIVES_SHAPE and not op.in_place:
            template = next((v for name, v in op.arguments(args, kwargs) if name in op.templates), None)
            if isinstance(template, torch.Tensor):
                outcome = shaped(op.name, outcome, type_of(template), tuple(template.shape), operands)
        elif op.rule.op in JOINING and (args[0] if args else kwargs.get("tensors")).__class__ is RepeatedList:
            outcome = cut_repeated(op.rule.op, outcome, args, kwargs, operands)
        elif op.in_place and op.name in OVERWRITING and args:
            outcome = cut_like_memory(outcome, type_of(args[0]), operands)
        elif op.name in COPIES and operands and (cuts := cuts_of(sizes := sizes_of_call(op.name, args, kwargs))):
            outcome = cut_copies(outcome, cuts, max(len(sizes), len(operands[0].shape or ())), operands)
    if outcome.refusals and all(one.refusal.code == FOREIGN_MESH for one in outcome.refusals):
        outcome = judged_elsewhere(
            op.rule, operands, values, mesh, outcome, strict=strict, blocked=blocked, scope=scope, call=call
        )
    return operands, values, outcome, blocked


def position_lost(operands: Sequence[Bound], outcome: Outcome) -> bool:
    """True if a number that differs per rank leaves nothing known, and nothing refused."""
    types = [operand.type for operand in operands if isinstance(operand.type, TensorType)]
    numbers = {
        a for o in operands if o.number is not None and isinstance(o.type, TensorType) for a in o.type.varying_axes
    }
    lost = {axis for axis in numbers if axis in outcome.type and outcome.type.get(axis).is_unknown}
    return any(not any(axis in type and type.get(axis).is_unknown for type in types) for axis in lost)


def _is_bucket(value: object) -> bool:
    """True of memory that is known piece by piece, and of the elements of a gradient in a row."""
    return is_pieced(value) or gradient_origin(tag_of(value)) is not None


def _unsharded(type: TensorType, mapped: Collection[object]) -> TensorType:
    """The global type of a bucket, which says nothing of axes that shard what is in it: it has no dim that they cut.

    ``mapped``  the axes that shard a dim which vmap has taken apart: these say all that there is to say.
    """
    apart = (axis for axis in type.varying_axes if axis not in mapped)
    hidden = {axis: UNKNOWN for axis in apart if partition_spec_get_shard(type.spec, axis) is None}
    return type.with_placements(hidden) if hidden else type
