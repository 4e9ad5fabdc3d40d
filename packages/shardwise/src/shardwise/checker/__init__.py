"""How a program is checked. Importing this room loads the engine; ``import shardwise`` does not."""

from shardwise.interop.session import is_type_checking

from .functions.autograd_functions import (
    register_autograd_function,
    register_decomposition,
    register_local_autograd_function,
    register_local_backward_hook,
)
from .mode import CheckMode
from .scopes.activation import SpmdTypeMode, checking, typecheck
from .scopes.regions import local, local_map, no_typecheck, register_no_typecheck

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
