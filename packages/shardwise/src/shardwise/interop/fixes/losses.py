"""Losses: the collective that made one replicate leaves it invariant, what varies is added up, counts are global."""

from __future__ import annotations

import ast

from shardwise.diagnostics.fix import Argument, Fix, Rewrite, Wrap
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import node_at
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.tensor_type import Exponent

from ..calls.located_call import provenance
from .collective_calls import typed_sum
from .expressions import call_at, group_argument, is_path, keyword_of, ranks_of, text_of


def added_up(span: SourceLocation | None, axis: MeshAxis, mean: str, total: str) -> tuple[Fix, ...]:
    """A loss of each rank's own, at ``span``, as a term of their mean or of their sum; lines of help for both."""
    group = group_argument(axis)
    if span is None:
        return ()
    step = f"{axis_argument(axis)}, src=spmd.V, dst=spmd.P)"
    added = Fix(total, (Rewrite(span, f"spmd.reinterpret({{}}, {step}"),), choice=True)
    if group is None:
        return (added,)
    ranks = ranks_of(group)
    loss = "{}" if isinstance(node_at(span), ast.Name | ast.Attribute | ast.Call) else "({})"
    return (Fix(mean, (Rewrite(span, f"spmd.reinterpret({loss} / {ranks}, {step}"),), choice=True), added)


def counted_by_all(
    name: str, span: SourceLocation | None, op: str, axis: MeshAxis, exponent: Exponent
) -> tuple[tuple[str, ...], tuple[Fix, ...]]:
    """Help and edits for a division by a number, at ``span``, that each rank has counted for itself.

    ``exponent``  its scale: 0 is what the rank counts, which the ranks sum; 1 is that times their number, which they
                  average. None is either.
    """
    step = f"{axis_argument(axis)}, src=V, dst=R"
    said = step.replace("=", "=spmd.")
    ways = []
    if exponent != 1:
        ways.append((f"all_reduce({name}, {step}) before {op}, if it is what this rank counts", f"{said})"))
    if exponent != 0:
        way = f'all_reduce({name}, {step}, op="avg") before {op}, if it is {axis.size()} times what this rank counts'
        ways.append((way, f'{said}, op="avg")'))
    if span is None:
        return tuple(way for way, _ in ways), ()
    fixes = [Fix(way, (Rewrite(span, f"spmd.all_reduce({{}}, {text}"),), choice=True) for way, text in ways]
    return tuple(way for way, _ in ways), tuple(fixes)


def on_one_rank(span: SourceLocation | None, axis: MeshAxis, help: str) -> tuple[Fix, ...]:
    """A whole loss that every rank has, at ``span``, as a pending sum to which one rank adds it and the others zero."""
    return () if span is None else (Fix(help, (Wrap(span, "convert", axis_argument(axis), "R", "P"),)),)


def invariant_instead(value: object, axis: MeshAxis, help: str) -> tuple[Fix, ...]:
    """The collective by which the value became replicate gives I."""
    for hop in provenance(value, axis):
        call = call_at(hop.location)
        if call is None or not hop.text.endswith(("since this all_reduce", "since this all_gather")):
            continue
        if keyword_of(call, "dst") is not None:
            return (Fix(help, (Argument(hop.location, "dst", "spmd.I"),)),)
        if hop.text.endswith("since this all_reduce") and call.args and keyword_of(call, "async_op") is None:
            name = text_of(hop.location, call.args[0])
            if is_path(name):
                return (Fix(help, (Rewrite(hop.location, f"{name} = {typed_sum(name, axis, 'P', 'I')}"),)),)
    return ()
