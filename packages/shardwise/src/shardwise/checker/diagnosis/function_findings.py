"""What is said of autograd functions around collectives: SW306 to SW309, at the lines of forward and backward."""

from __future__ import annotations

import ast
import dis
from collections.abc import Sequence
from types import CodeType
from typing import Any

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import Site
from shardwise.diagnostics.source_location import Operand, SourceLocation
from shardwise.diagnostics.syntax import nodes_in
from shardwise.interop.calls.located_call import axis_text, group_text, placement_text, placements_text
from shardwise.interop.tensors.tagging import tag_of
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.function_typings import FunctionTransition
from shardwise.oracle.public_transitions import PublicTransition
from shardwise.oracle.simulated_ranks.identity import code_of
from shardwise.oracle.simulated_ranks.replay import IssuedCollective
from shardwise.types.placement import I, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Placement, R, Shard

_SHOWN = 3


def _name(cls: type) -> str:
    return cls.__qualname__.rpartition("<locals>.")[2]


def return_line(cls: type, method: str) -> SourceLocation | None:
    """The last ``return`` of a method of an autograd function; its definition if it has none."""
    return last_return(code_of(cls, method))


def last_return(code: CodeType | None) -> SourceLocation | None:
    """The last ``return`` of a function; its definition if it has none."""
    if code is None:
        return None
    if code.co_name == "<lambda>":
        return _body_of_lambda(code)
    returns = [one.offset for one in dis.get_instructions(code) if one.opname.startswith("RETURN")]
    places = [Site(code, offset).location() for offset in returns]
    return max(places, key=lambda place: place.line, default=SourceLocation(code.co_filename, code.co_firstlineno))


def _body_of_lambda(code: CodeType) -> SourceLocation:
    """What a lambda gives; the line that it is in where that has more than one."""
    nodes = nodes_in(code.co_filename)
    found = [node for node in nodes if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    line = SourceLocation(code.co_filename, code.co_firstlineno, function=code.co_qualname)
    if len(found) != 1:
        return line
    body = found[0].body
    return SourceLocation(
        line.file, body.lineno, body.end_lineno, body.col_offset, body.end_col_offset, code.co_qualname
    )


def forward_line(cls: type, issued: Sequence[IssuedCollective]) -> SourceLocation | None:
    """The line of forward that is at fault: its first collective, or what it returns if it issues none."""
    sites = [one.site for one in issued if one.site is not None]
    return sites[0].location() if sites else return_line(cls, "forward")


def backward_line(cls: type, issued: Sequence[IssuedCollective] = ()) -> SourceLocation | None:
    """The line of backward that is at fault: its last collective, or what it returns if it issues none."""
    sites = [one.site for one in issued if one.site is not None]
    return sites[-1].location() if sites else return_line(cls, "backward")


def line_of_gradient(cls: type, gradient: object, axis: object) -> SourceLocation | None:
    """The line of backward that gave ``gradient`` its type on ``axis``, or the one that returns it."""
    code, tag = code_of(cls, "backward"), tag_of(gradient)
    origin = None if tag is None else tag.origin_of(axis)
    while origin is not None:
        if origin.site is not None and origin.site.code is code:
            return origin.site.location()
        origin = origin.parent
    return return_line(cls, "backward")


def not_partner(cls: type, found: FunctionTransition) -> Diagnosis:
    """SW307."""
    axis: Any = found.axis
    where, name = axis_text(axis), _name(cls)
    like = _distinct(found.like)
    what = f" over {where}"
    if like and like[0].row.op != "convert":
        what = f", which is {like[0].row.op} over {where}"
    done = f"backward returns {found.backward_like[0].words('the gradient')}" if found.backward_like else ""
    facts = [f"on {axis.size()} ranks with random values, {done}"] if done else []
    if found.scaled:
        facts = [f"backward gives {_times(found)} the gradient of forward"]
    elif not facts:
        facts = ["on simulated ranks, what backward returns is not the derivative of forward, however results are used"]
    if like:
        facts.insert(0, f"forward gives {like[0].words('its operand')}")
    help_lines = [
        f"backward that returns {one.backward.words('the gradient')}: the function is then {one.call('x', axis)}"
        for one in like[:_SHOWN]
    ]
    return Diagnosis(
        "SW307", f"the backward of {name} is not the partner of its forward{what}", tuple(facts), tuple(help_lines)
    )


def never_waited(cls: type, issued: IssuedCollective) -> Diagnosis:
    """SW307 of an asynchronous collective."""
    return Diagnosis(
        "SW307",
        f"{_name(cls)} never waits for this {issued.name}: what it returns may be without the other ranks' part",
        ("the handle is dropped, and the tensor is used while the collective still runs",),
        ("handle = ... and handle.wait() before the tensor is used or returned",),
    )


def misfit(
    cls: type, name: str, found: PublicTransition | None, axis: MeshAxis, wanted: Sequence[str], got: str
) -> Diagnosis:
    """SW308: operand ``name`` is ``got`` along ``axis``."""
    words = placements_text(wanted)
    own = PerMeshAxisLocalSpmdType(got)
    if got in "RI" and set(wanted) <= set("VP"):
        fact = f"its collective would combine {axis.size()} equal values"
    elif got == "R" and wanted == ["I"]:
        fact = f"its backward sums a gradient that is summed again before {name}: {axis.size()} times too much"
    elif got == "P":
        fact = f"each rank would hand in its own addend of {name}, and the sum is never made"
    else:
        fact = "the gradient that its backward returns is not that of such an operand"
    help_lines = (f"the function is {found.call(name, axis)}",) if found is not None else ()
    return Diagnosis(
        "SW308",
        f"{_name(cls)} takes {name} as {words} over {axis_text(axis)}, got {placement_text(own)}",
        (fact,),
        help_lines,
    )


def _times(found: FunctionTransition) -> str:
    size = found.axis.size() if found.axis is not None else 1
    return f"{size} times" if min(found.scaled) > 1 else f"1/{size} of"


def scaled(cls: type, found: FunctionTransition) -> Diagnosis:
    """SW309."""
    size, factor = found.axis.size() if found.axis is not None else 1, min(found.scaled)
    way = "leave out the division by the size of the group in backward"
    if factor > 1:
        way = f"return 1/{size} of the gradient in backward, if forward takes a mean; else leave out the factor there"
    return Diagnosis(
        "SW309",
        f"the backward of {_name(cls)} gives {_times(found)} the gradient of its forward over {axis_text(found.axis)}",
        (f"that is right only if something else {'divides' if factor > 1 else 'multiplies'} gradients by {size}",),
        (way,),
    )


def not_issued(cls: type, op: str, axis: MeshAxis, issued: Sequence[IssuedCollective]) -> Diagnosis:
    """SW306: the rule says ``op`` over ``axis``, and forward communicates elsewhere or not at all."""
    others = sorted({f"{one.name} over {axis_text(one.axis)}" for one in issued})
    done = f"issues {' and '.join(others)}" if others else "issues no collective"
    return Diagnosis(
        "SW306",
        f"the rule of {_name(cls)} says {op} over {axis_text(axis)}, but its forward {done}",
        ("the rule types the result, and the ranks do not hold what it says",),
        (f"group={group_text(axis)} in the collective of forward, or another axis in the rule",),
    )


def not_as_ruled(cls: type, position: int, axis: object, said: PerMeshAxisSpmdType) -> Diagnosis:
    """SW306: forward does not make a result as the rule says it is."""
    instead = "gives every rank another value" if said in (R, I) else "does not make that of such operands"
    own = f"sharded on dim {said.dim}" if isinstance(said, Shard) else placement_text(said)
    return Diagnosis(
        "SW306",
        f"the rule of {_name(cls)} says that output {position} is {own} over {axis_text(axis)}, but "
        f"its forward {instead}",
        ("forward was run on simulated ranks, with operands as the rule takes them",),
    )


def reads_varying(cls: type, axis: object, said: Placement, name: str, got: Placement) -> Diagnosis:
    """SW306: forward reads ``name`` from outside, which is ``got`` where the rule says that results are ``said``."""
    return Diagnosis(
        "SW306",
        f"the rule of {_name(cls)} says that output 0 is {placement_text(said)} over {axis_text(axis)}, but "
        f"its forward reads {name}, which is {placement_text(got)} there",
        (f"{name} is no argument of forward, so the rule says nothing of it",),
        (f"make {name} an argument of forward, and name it in the rule",),
    )


def wrong_derivative(cls: type, name: str, forward: float, backward: float) -> Diagnosis:
    """SW310: of the operand called ``name``."""
    return Diagnosis(
        "SW310",
        f"the backward of {_name(cls)} is not the derivative of its forward with respect to {name}",
        (
            f"on one rank, along a random direction: forward changes by {forward:.4g}, backward says {backward:.4g}",
            "forward was changed by small steps in double precision, with the operands of the program's first call",
        ),
        (f"@shardwise.register_straight_through on {_name(cls)}, if it is meant to be another gradient",),
    )


def shown_function(cls: type, types: str, location: SourceLocation | None) -> Operand:
    """The call of apply, as the operand of a finding about a line of the function."""
    return Operand(f"{_name(cls)}.apply", types, location)


def _distinct(like: Sequence[PublicTransition]) -> list[PublicTransition]:
    """One row for each backward, without those that need expert mode or read V as P."""
    kept: dict[str, PublicTransition] = {}
    for one in like:
        if one.row.expert is None:
            kept.setdefault(one.backward.words(""), one)
    return list(kept.values())
