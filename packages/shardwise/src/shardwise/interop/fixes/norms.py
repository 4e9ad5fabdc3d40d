"""Norms of gradients that are split over ranks: the function of ours that counts every piece once."""

from __future__ import annotations

from shardwise.diagnostics.fix import Fix, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import location_in

from .expressions import call_at, callee

COUNTED_ONCE = "shardwise.train.clip_grad_norm_ or grad_norm, which count every element once on any mesh"
"""The help where gradients that are split meet a norm that each rank has of its own."""

_TAKES = ("max_norm", "norm_type", "error_if_nonfinite")


def clipped_by_ours(location: SourceLocation | None, help: str) -> tuple[Fix, ...]:
    """``shardwise.train.clip_grad_norm_`` for torch's, with the same arguments."""
    call = call_at(location)
    if location is None or call is None or any(one.arg not in (*_TAKES, "parameters") for one in call.keywords):
        return ()
    if callee(location, call) != "clip_grad_norm_" or len(call.args) > 3:
        return ()
    return (Fix(help, (Rewrite(location_in(location, call.func), "spmd.train.clip_grad_norm_"),)),)
