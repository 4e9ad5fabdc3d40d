"""What each operator does to types: the rows of the rule book, and what hand-written rules are made of.

The rows load without torch. The operators live in the checker and are loaded on first use.
"""

from shardwise._doors import door, listed

_NAMES = {
    **listed("shardwise.rules.custom", "register_rule"),
    **listed("shardwise.checker.ndim", "NdimWithSpmdType"),
    **listed(
        "shardwise.checker.hook_ops", "einsum all_reduce all_gather reduce_scatter all_to_all reinterpret convert"
    ),
    **listed("shardwise.checker.hook_ops", "ignore output"),
    **listed("shardwise.checker.hooks", "run_typecheck hook_shape hook_kwargs"),
    **listed("shardwise.interop.forward_args", "bind_forward_args"),
}

__getattr__, __dir__, __all__ = door(__name__, _NAMES)
