"""What does every forked rank need that takes long to load? It is loaded once, before they are forked."""

from __future__ import annotations

import functools
import importlib

from shardwise.checker.patching.installation import rehearse
from shardwise.interop.torch_compat import preload
from shardwise.op_rules.registry import lookup

PUBLIC = (
    "shardwise.interop.autograd.function_declarations",
    "shardwise.collectives.regions",
    "shardwise.collectives.annotate",
    "shardwise.collectives.coerce",
    "shardwise.collectives.communicate",
    "shardwise.collectives.partial",
    "shardwise.collectives.queries",
    "shardwise.collectives.redistribute",
    "shardwise.collectives.remesh",
    "shardwise.interop.annotations.scalar",
)
"""Where the names live that programs import."""


@functools.cache
def warm_up() -> None:
    """Load torch's late imports, the registry and what programs import, and find what checks replace; once."""
    preload()
    lookup("add")
    for name in PUBLIC:
        importlib.import_module(name)
    rehearse()
