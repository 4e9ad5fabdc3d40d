"""What does every forked rank need that takes long to load? It is loaded once, before they are forked."""

from __future__ import annotations

import functools

import shardwise
from shardwise.interop.torch_compat import preload
from shardwise.rules.table import lookup


@functools.cache
def warm_up() -> None:
    """Load torch's late imports, the rule book and every public name; nothing if that has been done."""
    preload()
    lookup("add")
    for name in shardwise.__all__:
        getattr(shardwise, name)
