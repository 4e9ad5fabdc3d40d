"""Pending sums: completed where they were made, scattered where a piece of one is cut, or made of what varies."""

from __future__ import annotations

import ast
from types import CodeType

import torch

from shardwise.diagnostics.fix import Fix, Rewrite, Wrap
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import last_assigned, location_in, node_at, returned_by
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import I, P, R, V
from shardwise.types.tensor_type import TensorType

from ..calls.located_call import LocatedCall, provenance
from ..torch_compat import no_torch_function
from .expressions import call_at, callee, is_path, keyword_of, text_of

_PARTED = ("chunk", "tensor_split")
_NOT_MADE = ("assert_type", "assert_local_type")


def summed_where_made(located: LocatedCall, position: int, axis: MeshAxis, dst: str, doubt: str) -> tuple[Fix, ...]:
    """The sum around the call, in another function of the program, that left it pending: every use has it then.

    ``dst``    R or I.
    ``doubt``  what the sum depends on; empty if it is sure.
    """
    name, used = located.name(position), located.location
    for hop in provenance(located.values[position], axis):
        made = hop.location
        call = call_at(made)
        if made is None or call is None or callee(made, call) in _NOT_MADE or keyword_of(call, "async_op") is not None:
            continue
        if used is None or (made.file, made.function) == (used.file, used.function):
            return ()
        step = f"{axis_argument(axis)}, src=P, dst={dst})"
        where = f"in line {made.line}" if made.function == "<module>" else f"in {made.function}"
        help = f"all_reduce({callee(made, call)}(...), {step} {where}, which makes {name}{doubt}"
        return (Fix(help, (Wrap(made, "all_reduce", axis_argument(axis), "P", dst),), choice=bool(doubt)),)
    return ()


def scattered(located: LocatedCall, position: int, axis: MeshAxis) -> tuple[Fix, ...]:
    """``reduce_scatter`` in the place of ``y.chunk(n, dim)[rank]``, which takes a piece of what is not summed yet."""
    whole, value = located.location, located.values[position]
    cut = None if whole is None else node_at(whole)
    if whole is None or not isinstance(cut, ast.Subscript) or not isinstance(value, torch.Tensor):
        return ()
    parted = cut.value
    if not isinstance(parted, ast.Call) or callee(whole, parted) not in _PARTED:
        return ()
    given = list(parted.args)
    if isinstance(parted.func, ast.Attribute) and text_of(whole, parted.func.value) != "torch":
        given.insert(0, parted.func.value)
    dim = _integer(keyword_of(parted, "dim") or (given[2] if len(given) > 2 else ast.Constant(0)))
    with no_torch_function():
        ndim = value.ndim
    if not given or dim is None or not -ndim <= dim < ndim:
        return ()
    name, step = text_of(whole, given[0]), f"{axis_argument(axis)}, src={{0}}P, dst={{0}}S({dim % ndim}))"
    help = f"reduce_scatter({name}, {step.format('')}, the sum and this rank's piece of it"
    edit = Rewrite(whole, f"spmd.reduce_scatter({name}, {step.format('spmd.')}")
    return (Fix(help, (edit,)),)


def _integer(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def added_first(located: LocatedCall, position: int, axis: MeshAxis) -> tuple[Fix, ...]:
    """What varies, and would make what is invariant vary, added up over the ranks before the call."""
    name, span = located.names[position]
    step = f"{axis_argument(axis)}, src=V, dst=I)"
    help = f"all_reduce({name}, {step} before {located.op}, if the ranks' values are to be added up"
    edit = None if span is None else Wrap(span, "all_reduce", axis_argument(axis), "V", "I")
    return () if edit is None else (Fix(help, (edit,), choice=True),)


def reduced_at_return(code: CodeType | None, axis: object, found: TensorType, said: TensorType) -> tuple[Fix, ...]:
    """What a function returns made equal over the ranks, as it is declared: the maximum of maxima, the sum of the rest.

    ``found`` and ``said``  the type of what it returns, and the one that it declares.
    """
    returned = [] if code is None else returned_by(code)
    if code is None or len(returned) != 1 or not isinstance(axis, MeshAxis):
        return ()
    place, wanted, (value,) = found.get(axis), said.get(axis), returned
    if not (place is V or place is P) or not (wanted is R or wanted is I):
        return ()
    location = SourceLocation(code.co_filename, value.lineno, function=code.co_qualname)
    name = text_of(location, value)
    made = (last_assigned(location, name) or value) if is_path(name) else value
    extremum = next((kind for kind in ("max", "min") if _is_extremum(location, made, kind)), None)
    option = "" if extremum is None else f', op="{extremum}"'
    step = f"{axis_argument(axis)}, src={{0}}{place!r}, dst={{0}}{wanted!r}{option})"
    help = f"return all_reduce({name if is_path(name) else '...'}, {step.format('')} in {code.co_qualname}"
    if place is V and extremum is None:
        help = f"{help}, if the ranks' values are to be added up"
    edit = Rewrite(location_in(location, value), f"spmd.all_reduce({{}}, {step.format('spmd.')}")
    return (Fix(help, (edit,), choice=place is V),)


def _is_extremum(location: SourceLocation, made: ast.expr, kind: str) -> bool:
    """Is an expression the largest, or the smallest, element of something?"""
    if isinstance(made, ast.Attribute) and made.attr == "values":
        made = made.value
    return isinstance(made, ast.Call) and callee(location, made) in (kind, f"a{kind}", f"{kind}imum")
