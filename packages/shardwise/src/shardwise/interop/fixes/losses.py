"""Values that should be invariant, as losses: the collective that made one replicate leaves it invariant instead."""

from __future__ import annotations

from shardwise.diagnostics.fix import Argument, Fix, Rewrite
from shardwise.mesh.axis import MeshAxis

from ..calls.located_call import provenance
from .collective_calls import typed_sum
from .expressions import call_at, is_path, keyword_of, text_of


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
