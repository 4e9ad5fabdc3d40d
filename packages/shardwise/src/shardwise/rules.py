"""What each operator does to types: the rows of the rule book, and what hand-written rules are made of.

The rows load without torch. The operators live in the checker and are loaded on first use.
"""

from shardwise._doors import door, listed

_NAMES = {
    **listed("shardwise.op_rules.custom_rules", "register_rule"),
    **listed("shardwise.checker.typing_rules.ndim", "NdimWithSpmdType"),
    **listed(
        "shardwise.checker.typing_rules.operators",
        "einsum all_reduce all_gather reduce_scatter all_to_all reinterpret convert",
    ),
    **listed("shardwise.checker.typing_rules.operators", "ignore output"),
    **listed("shardwise.checker.typing_rules.protocol", "run_typecheck hook_shape hook_kwargs"),
    **listed("shardwise.interop.forward_args", "bind_forward_args"),
}

__getattr__, __dir__, __all__ = door(__name__, _NAMES)
