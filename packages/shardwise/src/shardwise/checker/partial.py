"""How is a contraction checked that names its partial axes? The product first, then the claim, then the bias.

Along a claimed axis every operand that is contracted must vary: only then does each rank hold an addend. The bias is
added to a pending sum, so it must be pending itself, or it would be counted once per rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_site
from shardwise.interop.op_names import OpName
from shardwise.interop.tagging import Origin, Tag, set_tag, tag_of, type_of
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import normalize_axis
from shardwise.rules.labels import Call, Shape
from shardwise.rules.row import Row
from shardwise.rules.table import lookup
from shardwise.types.errors import SpmdTypeError
from shardwise.types.placement import UNKNOWN, P, V
from shardwise.types.tensor_type import Ground, TensorType

from .binding import Bound
from .calls import Op
from .globally import Scope, scope_of
from .infer import infer
from .ordinary import Handler
from .report import Located, axis_text, placement_text, refuse
from .session import CheckSession


def partial_contraction(kind: str) -> Handler:
    """The handler for ``shardwise.linear``, ``matmul``, ``einsum`` or ``sum``; ``kind`` is that name."""
    row = lookup(kind)
    added = lookup("add")
    assert row is not None, f"the rule book has no row for {kind}"
    assert added is not None, "the rule book has no row for add"
    op = Op(OpName((kind,)), row)

    def handle(session: CheckSession, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operands_args, bias, claims = _parts(kind, args)
        bound, values = op.bind(operands_args, {})
        axes = [axis for claim in claims if (axis := normalize_axis(claim.axis)).size() > 1]
        mesh = current_entry()
        scope = None if session.local else replace(scope_of(session, mesh), claimed=frozenset(axes))
        call = op.labelled(operands_args, {}, bound)
        outcome = infer(row, bound, mesh, session.strict, scope=scope, call=call)
        if outcome.refusals:
            refuse(session, op.name, row, bound, values, outcome)
        type = outcome.type
        claimed: dict[Any, Any] = {}
        if type.ground is not Ground.UNKNOWN:
            claimed = {axis: _claim(session, kind, axis, bound, values, type, scope) for axis in axes}
            type = type.with_placements(claimed)
        if isinstance(bias, torch.Tensor):
            shape = (*values[0].shape[:-1], values[1].shape[0])
            type = _add_bias(session, kind, added, Bound("input", type, label="the product", shape=shape), bias, scope)
        result = func(*args, **kwargs)
        session.checked += 1
        _give(result, type, claimed, values, kind)
        return result

    return handle


def _parts(kind: str, args: Sequence[Any]) -> tuple[Sequence[Any], Any, Sequence[Any]]:
    """The contracted operands as the plain operator takes them, the bias, and the claims."""
    if kind == "linear":
        x, weight, bias, claims = args
        return (x, weight), bias, claims
    if kind == "einsum":
        equation, operands, claims = args
        return (equation, *operands), None, claims
    if kind == "matmul":
        x, other, claims = args
        return (x, other), None, claims
    x, dim, keepdim, _, claims = args
    return ((x,) if dim is None else (x, dim, keepdim)), None, claims


def _claim(
    session: CheckSession,
    kind: str,
    axis: Any,
    bound: Sequence[Bound],
    values: Sequence[Any],
    type: TensorType,
    scope: Scope | None,
) -> Any:
    """P if the claim holds along ``axis``, else UNKNOWN after a report."""
    if type.get(axis) in (P, UNKNOWN):
        return type.get(axis)
    places = [operand.type.get(axis) if isinstance(operand.type, TensorType) else None for operand in bound]
    constant = [isinstance(operand.type, TensorType) and operand.type.ground.is_constant for operand in bound]
    # An operand without a type has been reported, or is passed over in permissive mode.
    still = [at for at, place in enumerate(places) if place not in (V, None) and not constant[at]]
    if scope is not None and axis not in scope.local_axes:
        still = still or [0]  # the labels say that nothing sharded over the axis is contracted
    if not still:
        return P
    located = Located(kind, [(operand.label, value) for operand, value in zip(bound, values, strict=True)])
    name, place = located.name(still[0]), placement_text(places[still[0]])
    message = f"{kind} is asked for a partial sum over {axis_text(axis)}, but {name} is {place} there"
    facts = ("only a contraction whose operands are both sharded over the axis leaves a pending sum",)
    operands = tuple(located.operand(at, axis) for at in range(len(bound)))
    finding = Finding("SW135", message, located.place, kind, axis_text(axis), operands, facts)
    session.report(SpmdTypeError(message, code="SW135", finding=finding))
    return UNKNOWN


def _add_bias(
    session: CheckSession, kind: str, row: Row, product: Bound, bias: torch.Tensor, scope: Scope | None
) -> TensorType:
    """The type after the bias is added; a bias that is not partial where the product is would be counted n times."""
    grad = bias.requires_grad and torch.is_grad_enabled()
    operands = (
        replace(product, grad=grad),
        Bound("other", type_of(bias), label="bias", grad=grad, shape=tuple(bias.shape)),
    )
    shapes = tuple(Shape(operand.shape or (), operand.param) for operand in operands)
    outcome = infer(row, operands, current_entry(), session.strict, scope=scope, call=Call(shapes, {}))
    if outcome.refusals:
        refuse(session, kind, row, operands, ("the product", bias), outcome)
    return outcome.type


def _give(result: Any, type: TensorType, claimed: Mapping[Any, Any], values: Sequence[Any], kind: str) -> None:
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
