"""What is said of a branch or a loop that has no one type: both functions, and what each of them gives."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import CodeType
from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import is_internal
from shardwise.diagnostics.source_location import Operand, SourceLocation
from shardwise.interop.calls.located_call import LocatedCall, axis_text, describe_value, provenance, report
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.propagation.call_types import AxisRefusal, Outcome
from shardwise.planner.repairs import local_repairs
from shardwise.types.placement import R, Shard
from shardwise.types.spec import partition_spec_get_shard

from ..call.arguments import Op
from ..state.session import CheckSession

BRANCHES = ("true_fn", "false_fn")
CARRIES = ("init", "combine_fn")


def disagree(
    session: CheckSession,
    op: Op,
    functions: tuple[str, str],
    results: tuple[object, object],
    outcome: Outcome,
    what: str,
    sources: Sequence[object],
) -> None:
    """Report every axis along which two results that stand for each other have no common type."""
    for at in outcome.refusals:
        located = LocatedCall(op.name, [(name, value) for name, value in zip(functions, results, strict=True)])
        along = "" if at.axis is None else f" over {axis_text(at.axis)}"
        first, second = (_placed(value, at.axis) for value in results)
        if functions == BRANCHES:
            code = "SW420"
            of = f" about {what}" if what else ""
            message = (
                f"the branches of cond do not agree{of}{along}: {functions[0]} gives {first}, {functions[1]} {second}"
            )
            fact = "what comes after must hold whichever branch is taken, so there is no type for it"
        else:
            code = "SW421"
            message = (
                f"{op.name} changes the type of {what}{along}: it comes in as {first}, {functions[1]} gives {second}"
            )
            after = "would take another type than the first, and so would what comes after"
            fact = f"the next round of {functions[1]} {after}"
        operands = tuple(
            Operand(name, describe_value(value), location_of(source), provenance(value, at.axis))
            for name, value, source in zip(functions, results, sources, strict=True)
        )
        help_lines = () if at.axis is None else tuple(_help(op, functions, results, at))
        report(session, located, Diagnosis(code, message, (fact,), help_lines), at.axis, operands=operands)


def _help(op: Op, functions: tuple[str, str], results: tuple[object, object], at: AxisRefusal) -> list[str]:
    """Moves of one function's result to what the other gives; those that the rules try, and those between shards."""
    lines = []
    shards = [_shard(value, at.axis) for value in results]
    if shards[0] is not None and shards[1] is not None:
        lines.append(
            f"all_to_all(..., {axis_argument(at.axis)}, src={shards[1]!r}, dst={shards[0]!r}) in {functions[1]}"
        )
    for mine, other, function in ((0, 1, functions[1]), (1, 0, functions[0])):
        if shards[mine] is not None and type_of(results[other]).get(at.axis) is R:
            lines.append(f"convert(..., {axis_argument(at.axis)}, src=R, dst={shards[mine]!r}) in {function}")
    for plan in local_repairs(op.rule, at.givens):
        step, where = plan.steps[0], " and in ".join(functions[at.positions[one.position]] for one in plan.steps)
        lines.append(
            f"{step.op}(..., {axis_argument(at.axis)}, src={step.src!r}, dst={step.dst!r}) in {where} ({step.effect})"
        )
    return lines


def _placed(value: object, axis: object) -> str:
    if axis is None:
        return describe_value(value)
    place = _shard(value, axis) or type_of(value).get(axis)
    return f"{place!r} ({place.word})" if place is not None else "no type"


def _shard(value: object, axis: object) -> Shard | None:
    return partition_spec_get_shard(type_of(value).spec, axis)


def location_of(function: object) -> SourceLocation | None:
    """Where the program wrote ``function``; torch wraps it in functions of its own."""
    code = _code(function)
    if code is None:
        return None
    return SourceLocation(code.co_filename, code.co_firstlineno, function=getattr(code, "co_qualname", code.co_name))


def _code(function: object, depth: int = 4) -> CodeType | None:
    """The code of the function, or of the first one inside its wrappers that is not torch's."""
    if function is None or depth == 0:
        return None
    if isinstance(function, functools.partial):
        inner: list[Any] = [function.func, *function.args, *function.keywords.values()]
    else:
        own = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        if own is not None and not is_internal(own):
            return own  # type: ignore[no-any-return]
        closure = getattr(function, "__closure__", None) or ()
        inner = [cell.cell_contents for cell in closure]
    found = (_code(one, depth - 1) for one in inner if callable(one))
    return next((code for code in found if code is not None), None)
