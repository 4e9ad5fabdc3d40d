"""How is a refusal told? Builds findings from outcomes: names of the operands, facts with numbers, tried repairs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.source import is_internal
from shardwise.interop.gradient_origin import gradient_origin
from shardwise.interop.located_call import LocatedCall, axis_text, describe_value, group_text
from shardwise.interop.session import Session
from shardwise.interop.tagging import tag_of
from shardwise.mesh.entry import current_entry
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.op_rules.propagation.dim_labels import Call
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.schema import OpRule
from shardwise.types.errors import SpmdTypeError
from shardwise.types.tensor_type import TensorType

from .repair import repairs
from .sharding_report import SHARDING, sharding_advice, sharding_help, sharding_refused

_COMPARING = torch.testing.assert_close.__code__.co_filename


def refuse(
    session: Session,
    op: str,
    rule: OpRule,
    operands: Sequence[Bound],
    values: Sequence[Any],
    outcome: Outcome,
    *,
    blocked: str | None = None,
) -> None:
    """Report every refusal of ``outcome``; returns only if the session collects or the call only compares values."""
    if _only_compares():
        return
    located = LocatedCall(op, [(operand.label, value) for operand, value in zip(operands, values, strict=True)])
    for refusal in outcome.refusals:
        finding = _finding(op, rule, operands, located, refusal, blocked, outcome.call)
        context = context_block(op, operands, values)
        session.report(
            SpmdTypeError(finding.message, code=finding.code, help=finding.help, finding=finding, context=context)
        )


def _only_compares() -> bool:
    """True inside ``assert_close``: comparing local tensors is how a type error is hunted down."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_internal(frame.f_code):
        if frame.f_code.co_filename == _COMPARING:
            return True
        frame = frame.f_back
    return False


def context_block(op: str, operands: Sequence[Bound], values: Sequence[Any]) -> str:
    """The offending call with its operands, one per line, and the mesh it ran under."""
    lines = [f"    {operand.label}: {describe_value(value)}," for operand, value in zip(operands, values, strict=True)]
    entry = current_entry()
    mesh = "" if entry is None else f" under mesh {{{', '.join(map(axis_text, entry.ordered_axes))}}}"
    return "\n".join([f"  In {op}(", *lines, f"  ){mesh}"])


def _finding(
    op: str,
    rule: OpRule,
    operands: Sequence[Bound],
    located: LocatedCall,
    at: AxisRefusal,
    blocked: str | None,
    call: Call | None,
) -> Finding:
    refusal = at.refusal
    # Positions in a per-axis refusal count the operands on that axis; elsewhere they count the call's operands.
    spots = at.positions or tuple(range(len(operands)))
    culprits = [spots[position] for position in refusal.culprits]
    others = [spots[position] for position in refusal.others]
    axis = axis_text(at.axis) if at.axis is not None else ""
    message, facts = _tell(op, rule, operands, located, at, culprits, others, axis)
    help_lines = []
    gradient = _pending_gradient(operands, located, at.axis, [*culprits, *others])
    if gradient is not None:
        facts.append(f"{gradient} is a gradient, or made of one, and nobody has summed it over {axis}")
        help_lines.append(f"dist.all_reduce({gradient}, group={group_text(at.axis)}) before {op}")
    for repair in repairs(rule, at.givens, blocked=blocked) if at.givens and gradient is None else ():
        step = repair.transition
        names = [located.name(spots[position]) for position in repair.positions]
        along = axis_argument(at.axis)
        calls = [f"{step.call}({name}, {along}, src={step.src!r}, dst={step.dst!r})" for name in names]
        help_lines.append(f"{' and '.join(calls)} before {op} ({step.cost})")
    if refusal.code == "SW405" and "norm" in op and gradient_origin(tag_of(located.values[culprits[0]])) is not None:
        help_lines.append("shardwise.train.clip_grad_norm_ or grad_norm, which count every element once on any mesh")
    elif refusal.code in SHARDING and at.axis is not None:
        help_lines += sharding_advice(op, rule, refusal.code, operands, located, culprits[0], at.axis)
        if call is not None and refusal.code not in ("SW408", "SW418"):
            help_lines += sharding_help(op, rule, call, operands, located, at.axis)
    if refusal.code == "SW121" and not help_lines:
        along = axis_argument(at.axis)
        help_lines.append(f"with shardwise.rng(seed, synchronised={along}): a stream that draws alike there")
        help_lines.append(f"with synchronised_rng({along}): if the generators are seeded alike there")
    if refusal.code == "SW620":
        help_lines.append(f"with shardwise.rng(seed, distinct={axis_argument(at.axis)}): for what differs per rank")
    if refusal.code in ("SW102", "SW103"):
        axes = [at.axis] if at.axis is not None else _axes_of([operands[position] for position in others])
        types = ", ".join(f"{axis_argument(one)}: R" for one in axes)
        names = [located.name(position) for position in culprits]
        what, where = (names[0], "it is") if len(names) == 1 else (f"[{', '.join(names)}]", "they are")
        help_lines.append(f"assert_type({what}, {{{types}}}) where {where} made (or I, V, P, S(i))")
    shown = list(dict.fromkeys([*culprits, *others]))
    return Finding(
        code=refusal.code,
        message=message,
        location=located.location,
        op=op,
        axis=axis,
        operands=tuple(located.operand(position, at.axis) for position in shown),
        facts=tuple(facts),
        help=tuple(help_lines),
    )


def _pending_gradient(
    operands: Sequence[Bound], located: LocatedCall, axis: Any, positions: Sequence[int]
) -> str | None:
    """The first of these operands that is a gradient whose sum over ``axis`` is pending, by name."""
    for position in positions:
        type = operands[position].type
        pending = isinstance(type, TensorType) and type.is_partial(axis)
        if pending and gradient_origin(tag_of(located.values[position])) is not None:
            name, location = located.names[position]
            return name if location is not None else "p.grad"  # read inside of torch, from a list of parameters
    return None


def _axes_of(operands: Sequence[Bound]) -> list[Any]:
    """The axes that typed operands mention, in the order of the mesh."""
    axes = {axis for operand in operands if isinstance(operand.type, TensorType) for axis in operand.type.axes}
    return sorted(axes, key=lambda axis: axis.sort_key)


def _tell(
    op: str,
    rule: OpRule,
    operands: Sequence[Bound],
    located: LocatedCall,
    at: AxisRefusal,
    culprits: Sequence[int],
    others: Sequence[int],
    axis: str,
) -> tuple[str, list[str]]:
    """The message of a refusal and the facts behind it."""
    code = at.refusal.code
    name = located.name(culprits[0])
    size = at.axis.size() if at.axis is not None else 0

    def placed(position: int) -> str:
        type = operands[position].type
        place = type.get(at.axis) if hasattr(type, "get") else None
        return f"{located.name(position)} ({place!r})" if place is not None else located.name(position)

    if code == "SW101":
        mixed = ", ".join(placed(position) for position in others)
        return (
            f"{op} mixes {name}, invariant over {axis}, with {mixed}",
            [f"the gradient of {name} would be a different addend on each of the {size} ranks, not the invariant one"],
        )
    if code == "SW102":
        other = located.name(others[0]) if others else "the other operands"
        return f"{name} has no type and meets {other}, which has one, in {op}", []
    if code == "SW103":
        return f"the type of {name} says nothing about {axis}, which is in play in {op}", []
    if code == "SW110":
        return (
            f"{op} combines {name}, a partial sum over {axis}, with {located.name(others[0])}, which varies there",
            [f"the sum over {axis} is still pending, and a term that differs per rank does not commute with it"],
        )
    if code == "SW111":
        second = located.name(culprits[1])
        return (
            f"{op} multiplies two partial sums over {axis}, {name} and {second}",
            ["(a0 + a1) * (b0 + b1) is not a0*b0 + a1*b1"],
        )
    if code == "SW112":
        why = at.refusal.reason
        facts = [] if why == "nonlinear" else [why]
        return f"{op} needs complete values, but {name} is still a partial sum over {axis}", facts
    if code == "SW113":
        partial = operands[others[0]].type
        pending = isinstance(partial, TensorType) and partial.is_partial(at.axis)
        told = " and ".join(located.name(position) for position in others)
        why = f"{told} is a partial sum" if pending else f"the product of {told} is a pending sum"
        return (
            f"{op} adds {name} once per rank: {why} over {axis}, {name} is not",
            [f"after the sum over {axis} it would have been counted {size} times"],
        )
    if code == "SW114":
        where = operands[culprits[0]].label
        return f"{name} is a partial sum over {axis} and stands where {op} is not linear ({where})", []
    if code in SHARDING:
        return sharding_refused(op, operands, located, at, culprits, others, axis)
    if code == "SW121":
        return f"{op} draws different random numbers on each rank of {axis} for {name}, which must be equal there", []
    if code == "SW620":
        return (
            f"{op} draws the same random numbers on every rank of {axis} for {name}, which varies there",
            ["the stream in use is synchronised there, so every rank's piece gets the same noise"],
        )
    return f"{op}: {at.refusal.reason}", []


def placement_text(place: Any) -> str:
    """``R (replicate)`` for messages."""
    return f"{place!r} ({place.word})"
