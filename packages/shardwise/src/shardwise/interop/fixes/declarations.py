"""Declarations that a function of the program keeps types, where its code neither communicates nor asks for ranks."""

from __future__ import annotations

import re

import torch.distributed as dist

from shardwise.diagnostics.fix import Fix, Insert
from shardwise.diagnostics.source_location import SourceLocation

from .expressions import expression_of

_RANKS = re.compile(r"rank|world|group|mesh|dist", re.IGNORECASE)


def registered_before(location: SourceLocation | None, hook: object, help: str) -> tuple[Fix, ...]:
    """A backward hook vouched for before the call that runs it, if all that it names is known to be local."""
    code, name = getattr(hook, "__code__", None), expression_of(hook)
    if location is None or code is None or name is None or code.co_freevars:
        return ()
    if any(_RANKS.search(one) or hasattr(dist, one) for one in code.co_names):
        return ()
    return (Fix(help, (Insert(location, (f"spmd.register_local_backward_hook({name})",)),), choice=True),)
