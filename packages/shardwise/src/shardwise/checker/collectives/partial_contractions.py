"""Contractions that name their partial axes: the product is checked first, then the claim, then bias or count.

Along a claimed axis every operand that is contracted must vary: only then does each rank hold an addend. The bias is
added to a pending sum, so it must be pending itself, or it would be counted once per rank. The count by which a mean
divides must be one number for all, and where it is left out, the shards must be even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.annotations.scalar import Scalar
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.calls.op_names import OpName
from shardwise.interop.tensors.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Keywords, TorchFunction
from shardwise.interop.torch_compat import takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import normalize_axis
from shardwise.op_rules.propagation.call_types import propagate
from shardwise.op_rules.propagation.dim_labels import Call, Shape
from shardwise.op_rules.propagation.operand import Bound, sharded_dim
from shardwise.op_rules.propagation.placer import Scope
from shardwise.op_rules.propagation.sharded import Placed, Sharded, sharded_rule
from shardwise.op_rules.registry import lookup
from shardwise.op_rules.schema import OpRule
from shardwise.types.notation import TypedShape
from shardwise.types.placement import UNKNOWN, P, Placement, V
from shardwise.types.tensor_type import Ground, TensorType

from ..call.arguments import Op
from ..diagnosis.collective_findings import not_a_partial_sum
from ..diagnosis.reporter import refuse
from ..operators.judging import READING, UnreadableArguments
from ..operators.ordinary import Handler
from ..state.session import CheckSession
from .mean_count import check_count, check_given
from .partial_sources import check_sources


def partial_contraction(kind: str) -> Handler:
    """The handler for ``shardwise.linear``, ``matmul``, ``einsum``, ``sum`` or ``mean``; ``kind`` is that name."""
    rule = lookup("sum" if kind == "mean" else kind)
    after = lookup("div" if kind == "mean" else "add")
    assert rule is not None, f"the registry has no rule for {kind}"
    assert after is not None, "the registry has rules for add and div"
    op = Op(OpName((kind,)), rule)

    def handle(session: CheckSession, func: TorchFunction, args: Sequence[Any], kwargs: Keywords) -> object:
        operands_args, other, claims = _parts(kind, args)
        if not all(isinstance(value, torch.Tensor) for value in _tensors(kind, operands_args)):
            return func(*args, **kwargs)  # torch says what it does not take
        bound, values = op.bind(operands_args, {})
        lies = check_sources(session, kind, claims, bound, values)
        axes = [axis for claim in claims if (axis := normalize_axis(claim.axis)).size() > 1]
        mesh = current_entry()
        scope = None if session.local else replace(session.scope(mesh), claimed=frozenset(axes))
        call = op.labelled(operands_args, {}, bound)
        try:
            outcome = propagate(rule, bound, mesh, session.strict, scope=scope, call=call)
        except READING as error:
            raise UnreadableArguments(op.name) from error
        if outcome.refusals:
            refuse(session, op.name, rule, bound, values, outcome)
        type = outcome.type
        claimed: dict[MeshAxis, Placement] = {}
        if type.ground is not Ground.UNKNOWN:
            claimed = {
                axis: UNKNOWN if axis in lies else _claim(session, op, axis, bound, values, type, scope, call)
                for axis in axes
            }
            if kind == "mean" and other is None:
                claimed |= check_count(session, axes, bound, values, type, even=args[5])
            type = type.with_placements(claimed)
            if kind == "mean" and isinstance(other, (torch.Tensor, Scalar)):
                type = type.with_placements(check_given(session, type, other))
        if isinstance(other, (torch.Tensor, Scalar)):
            type = _combined(session, kind, after, type, _shape(kind, args), other, scope)
        result = func(*args, **kwargs)
        session.checked += 1
        _give(result, type, claimed, values, kind)
        return result

    return handle


def _parts(kind: str, args: Sequence[Any]) -> tuple[Sequence[Any], Any, Sequence[Any]]:
    """The contracted operands as the plain operator takes them, the bias or count, and the claims."""
    if kind == "linear":
        x, weight, bias, claims = args
        return (x, weight), bias, claims
    if kind == "einsum":
        equation, operands, claims = args
        return (equation, *operands), None, claims
    if kind == "matmul":
        x, other, claims = args
        return (x, other), None, claims
    x, dim, keepdim = args[:3]
    return ((x,) if dim is None else (x, dim, keepdim)), args[4] if kind == "mean" else None, args[-1]


def _tensors(kind: str, operands: Sequence[object]) -> Sequence[object]:
    """Those of the plain operator's arguments that have to be tensors."""
    if kind == "einsum":
        return operands[1:]
    return operands[:1] if kind in ("sum", "mean") else operands


def _claim(
    session: CheckSession,
    op: Op,
    axis: MeshAxis,
    bound: Sequence[Bound],
    values: Sequence[object],
    type: TensorType,
    scope: Scope | None,
    call: Call,
) -> Any:
    """P if the claim holds along ``axis``, else UNKNOWN after a report."""
    if type.get(axis) in (P, UNKNOWN):
        return type.get(axis)
    places = [operand.type.get(axis) if isinstance(operand.type, TensorType) else None for operand in bound]
    constant = [isinstance(operand.type, TensorType) and operand.type.ground.is_constant for operand in bound]
    # An operand without a type has been reported, or is passed over in permissive mode.
    still = [at for at, place in enumerate(places) if place not in (V, None) and not constant[at]]
    globally = scope is not None and axis not in scope.local_axes
    if not still and (globally or _keeps_shards(op, axis, bound, call)):
        still = [at for at, place in enumerate(places) if place is not None][:1]
    if not still:
        return P
    located = LocatedCall(op.name, [(operand.label, value) for operand, value in zip(bound, values, strict=True)])
    name, dim = located.name(still[0]), sharded_dim(bound[still[0]].type, axis)
    said = not_a_partial_sum(op.name, name, axis, places[still[0]], dim)
    report(session, located, said, axis, operands=located.shown(axis))
    return UNKNOWN


def _keeps_shards(op: Op, axis: MeshAxis, bound: Sequence[Bound], call: Call) -> bool:
    """True if it is known which dims are sharded over the axis, and that the result still has them."""
    cut = [(operand.type, sharded_dim(operand.type, axis)) for operand in bound if operand.shape is not None]
    varying = [dim for type, dim in cut if isinstance(type, TensorType) and type.is_varying(axis)]
    known = varying and None not in varying
    labelling = op.rule.labels(call) if known and op.rule.labels is not None else None
    if labelling is None:
        return False
    sharded = [Sharded(type.get(axis) if isinstance(type, TensorType) else None, dim, dim is None) for type, dim in cut]
    placed = sharded_rule(labelling, sharded, partials=True)
    return isinstance(placed, Placed) and placed.placement is V


def _shape(kind: str, args: Sequence[Any]) -> tuple[int, ...]:
    """The shape of the product of a linear, or of the sum of a mean."""
    if kind == "linear":
        return (*args[0].shape[:-1], args[1].shape[0])
    x, dim, keepdim = args[:3]
    gone = {each % max(x.ndim, 1) for each in ((dim,) if isinstance(dim, int) else dim or range(x.ndim))}
    return tuple(1 if at in gone else size for at, size in enumerate(x.shape) if keepdim or at not in gone)


def _combined(
    session: CheckSession,
    kind: str,
    rule: OpRule,
    type: TensorType,
    shape: tuple[int, ...],
    other: object,
    scope: Scope | None,
) -> TensorType:
    """The type after the bias is added to the product, or the sum divided by the count.

    A bias that is not partial where the product is would be added once per rank; a count must be the same on all.
    """
    grad = isinstance(other, torch.Tensor) and takes_gradient(other) and torch.is_grad_enabled()
    first, second = ("the sum", "count") if kind == "mean" else ("the product", "bias")
    own = tuple(other.shape) if isinstance(other, torch.Tensor) else None
    operands = (
        Bound("input", type, label=first, grad=grad, shape=shape),
        Bound("other", type_of(other), label=second, grad=grad, shape=own),
    )
    shapes = tuple(Shape(operand.shape, operand.param) for operand in operands if operand.shape is not None)
    outcome = propagate(rule, operands, current_entry(), session.strict, scope=scope, call=Call(shapes, {}))
    if outcome.refusals:
        dtype = str(other.dtype) if isinstance(other, torch.Tensor) else "torch.float32"
        refuse(session, kind, rule, operands, (TypedShape(dtype, shape, type), other), outcome)
    return outcome.type


def _give(
    result: object, type: TensorType, claimed: Mapping[MeshAxis, Placement], values: Sequence[object], kind: str
) -> None:
    site = user_site(2)
    origins: list[Origin | None] = []
    for axis in type.axes:
        if claimed.get(axis) is P:
            origins.append(Origin(site, f"partial over {axis!r} since this {kind}"))
        else:
            tags = [tag for tag in map(tag_of, values) if tag is not None]
            same = [tag for tag in tags if tag.type.get(axis) is type.get(axis)]
            origins.append(same[0].origin_of(axis) if same else None)
    set_tag(result, Tag(type, tuple(origins)))
