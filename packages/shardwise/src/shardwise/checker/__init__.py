"""How a program is checked. Importing this folder loads the engine; ``import shardwise`` does not."""

from shardwise.collectives.regions import local, local_map, no_typecheck, register_no_typecheck
from shardwise.interop.autograd.function_declarations import (
    register_autograd_function,
    register_decomposition,
    register_local_autograd_function,
    register_local_backward_hook,
)
from shardwise.interop.running.session import is_type_checking

from .mode import CheckMode
from .scopes.activation import SpmdTypeMode, checking, typecheck

__all__ = [
    "CheckMode",
    "SpmdTypeMode",
    "checking",
    "is_type_checking",
    "local",
    "local_map",
    "no_typecheck",
    "register_autograd_function",
    "register_decomposition",
    "register_local_autograd_function",
    "register_local_backward_hook",
    "register_no_typecheck",
    "typecheck",
]
