"""How is a contraction checked that names its partial axes? The product first, then the claim, then the bias.

Along a claimed axis every operand that is contracted must vary: only then does each rank hold an addend. The bias is
added to a pending sum, so it must be pending itself, or it would be counted once per rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import user_site
from shardwise.interop.op_names import OpName
from shardwise.interop.tagging import Origin, Tag, set_tag, tag_of
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import normalize_axis
from shardwise.rules.table import lookup
from shardwise.types.errors import SpmdTypeError
from shardwise.types.placement import UNKNOWN, P, V
from shardwise.types.tensor_type import Ground, TensorType

from .binding import Bound
from .calls import Op
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
        mesh = current_entry()
        outcome = infer(row, bound, mesh, session.strict)
        if outcome.refusals:
            refuse(session, op.name, row, bound, values, outcome)
        type = outcome.type
        claimed: dict[Any, Any] = {}
        for claim in claims:
            axis = normalize_axis(claim.axis)
            if axis.size() > 1 and type.ground is not Ground.UNKNOWN:
                claimed[axis] = _claim(session, kind, axis, bound, values, type)
        if claimed:
            type = type.with_placements(claimed)
        if isinstance(bias, torch.Tensor):
            type = _add_bias(session, kind, added, type, bias, mesh)
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
    return (args[0],), None, args[-1]


def _claim(
    session: CheckSession, kind: str, axis: Any, bound: Sequence[Bound], values: Sequence[Any], type: TensorType
) -> Any:
    """P if the claim holds along ``axis``, else UNKNOWN after a report."""
    places = [operand.type.get(axis) if isinstance(operand.type, TensorType) else None for operand in bound]
    if UNKNOWN in places or type.get(axis) in (P, UNKNOWN):
        return type.get(axis)
    constant = [isinstance(operand.type, TensorType) and operand.type.ground.is_constant for operand in bound]
    still = [at for at, place in enumerate(places) if place is not V and not constant[at]]
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
    session: CheckSession, kind: str, row: Any, type: TensorType, bias: torch.Tensor, mesh: Any
) -> TensorType:
    """The type after the bias is added; a bias that is not partial where the product is would be counted n times."""
    tag = tag_of(bias)
    grad = bias.requires_grad and torch.is_grad_enabled()
    product = Bound("input", type, label="the product", grad=grad)
    addend = Bound("other", tag.current() if tag else TensorType.of(), label="bias", grad=grad)
    outcome = infer(row, (product, addend), mesh, session.strict)
    if outcome.refusals:
        refuse(session, kind, row, (product, addend), ("the product", bias), outcome)
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
