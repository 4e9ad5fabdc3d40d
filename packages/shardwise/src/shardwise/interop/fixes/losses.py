"""Values that should be invariant, as losses: the collective that made one replicate leaves it invariant instead."""

from __future__ import annotations

import ast

from shardwise.diagnostics.fix import Argument, Fix, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import node_at
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument

from ..calls.located_call import provenance
from .collective_calls import typed_sum
from .expressions import call_at, group_argument, is_path, keyword_of, text_of


def added_up(span: SourceLocation | None, axis: MeshAxis, mean: str, total: str) -> tuple[Fix, ...]:
    """A loss of each rank's own, at ``span``, as a term of their mean or of their sum; lines of help for both."""
    group = group_argument(axis)
    if span is None:
        return ()
    step = f"{axis_argument(axis)}, src=spmd.V, dst=spmd.P)"
    added = Fix(total, (Rewrite(span, f"spmd.reinterpret({{}}, {step}"),), choice=True)
    if group is None:
        return (added,)
    ranks = f"dist.get_world_size({group.removeprefix(', ')})"
    loss = "{}" if isinstance(node_at(span), ast.Name | ast.Attribute | ast.Call) else "({})"
    return (Fix(mean, (Rewrite(span, f"spmd.reinterpret({loss} / {ranks}, {step}"),), choice=True), added)


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
