"""A collective over another axis, and a typed collective in the place of a raw one that autograd does not see."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from shardwise.diagnostics.fix import Argument, Fix, Insert, Rewrite, Wrap
from shardwise.diagnostics.source_location import Hop, SourceLocation
from shardwise.diagnostics.syntax import last_assigned, location_in
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import Placement
from shardwise.types.tensor_type import TensorType

from ..calls.located_call import LocatedCall, provenance
from .expressions import call_at, callee, group_argument, is_path, keyword_of, text_of

_STEP = re.compile(r"(\w+)\(([^,()]+), src=([\w()]+), dst=([\w()]+)\)(?: |$)")
"""A transition whose operand is left out: ``convert("tp", src=R, dst=S(0)) to keep one piece per rank``."""


def meant_axis(type: TensorType, axis: MeshAxis, admits: Callable[[Placement], bool]) -> MeshAxis | None:
    """The one axis, other than ``axis``, along which an operand is what the call needs; None if not one is."""
    found = [one for one in type.axes if one is not axis and admits(type.get(one))]
    return found[0] if len(found) == 1 and found[0].isorthogonal(axis) else None


def as_said(located: LocatedCall, ways: Sequence[str]) -> tuple[Fix, ...]:
    """The lines of help that are another transition of the call's operand, or leave it as it is."""
    fixes: list[Fix] = []
    for way in ways:
        step = _STEP.match(way.replace(f"({located.name(0)}, ", "(", 1))
        if step is not None:
            fixes += located.replaced(way, *step.groups())
        elif way.startswith(f"{located.name(0)} as it is"):
            fixes += located.replaced(way)
    return tuple(fixes)


def over_axis(location: SourceLocation | None, axis: MeshAxis, help: str, *, raw: bool = False) -> tuple[Fix, ...]:
    """The call over another axis."""
    group = group_argument(axis) if raw else axis_argument(axis)
    if location is None or not group:
        return ()
    said = ("group", group.removeprefix(", group="), 2) if raw else ("axis", group, 1)
    return (Fix(help, (Argument(location, *said),)),)


def over_axis_where_made(origin: tuple[Hop, ...], axis: MeshAxis, help: str) -> tuple[Fix, ...]:
    """The collective that made a value equal over the wrong axis, over ``axis``."""
    for hop in origin:
        call = call_at(hop.location)
        if call is not None and keyword_of(call, "src") is not None and keyword_of(call, "dst") is not None:
            return over_axis(hop.location, axis, help)
        if call is not None and hop.text.endswith("since this all_reduce"):
            return over_axis(hop.location, axis, help, raw=True)
    return ()


def cut_where_made(value: object, name: str, axis: MeshAxis, known: int, said: int) -> tuple[Fix, ...]:
    """The collective of ours that has cut a value along dim ``known`` cuts it along ``said``."""
    for hop in provenance(value, axis):
        call = call_at(hop.location)
        cut = None if call is None else keyword_of(call, "dst")
        if call is None or not isinstance(cut, ast.Call):
            continue
        if callee(hop.location, cut) in ("S", "Shard") and [ast.unparse(one) for one in cut.args] == [str(known)]:
            op = callee(hop.location, call)
            help = (
                f"dst=S({said}) in the {op} in line {hop.location.line} that makes {name}, if it is meant to be cut so"
            )
            return (Fix(help, (Argument(hop.location, "dst", f"spmd.S({said})"),), choice=True),)
    return ()


def typed_in_place(
    location: SourceLocation | None, name: str, axis: MeshAxis, src: str, helps: tuple[str, ...]
) -> tuple[Fix, ...]:
    """``y = all_reduce(y, ...)`` for a raw all_reduce of ``y``; one line of help for R and one for I."""
    call = call_at(location)
    if location is None or call is None or not is_path(name) or keyword_of(call, "async_op") is not None:
        return ()
    return tuple(
        Fix(help, (Rewrite(location, f"{name} = {typed_sum(name, axis, src, dst)}"),))
        for help, dst in zip(helps, ("R", "I"), strict=True)
    )


def detached_maximum(location: SourceLocation | None, name: str, help: str) -> tuple[Fix, ...]:
    """What is reduced cut off from autograd, where it was made as the largest element: a softmax does not depend on it.

    Source: the derivative of a softmax by what is subtracted from all of its arguments is 0.
    """
    made = None if location is None or not is_path(name) else last_assigned(location, name)
    if location is None or made is None or not text_of(location, made).rpartition("(")[0].endswith(("amax", "max")):
        return ()
    return (Fix(help, (Rewrite(location_in(location, made), "{}.detach()"),)),)


def sum_first(
    location: SourceLocation | None,
    operand: tuple[str, SourceLocation | None],
    axis: MeshAxis,
    help: str,
    *,
    written: bool,
) -> tuple[Fix, ...]:
    """The operand summed before the call; ``written``: the call writes into it, so that it keeps its name."""
    name, span = operand
    if not written or not is_path(name):  # nobody else sees what a call writes into an expression
        return () if span is None else (Fix(help, (Wrap(span, "all_reduce", axis_argument(axis), "P", "R"),)),)
    if location is None:
        return ()
    return (Fix(help, (Insert(location, (f"{name} = {typed_sum(name, axis, 'P', 'R')}",)),)),)


def typed_sum(name: str, axis: MeshAxis, src: str, dst: str) -> str:
    """A call of our all_reduce, as edits write it."""
    return typed_call("all_reduce", name, axis_argument(axis), src, dst)


def typed_call(op: str, name: str, axis: str, src: str, dst: str, options: str = "") -> str:
    """A call of one of our transitions, as edits write it; ``axis`` as the program may spell it."""
    return f"spmd.{op}({name}, {axis}, src=spmd.{src}, dst=spmd.{dst}{', ' if options else ''}{options})"
