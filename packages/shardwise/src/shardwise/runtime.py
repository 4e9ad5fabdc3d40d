"""What a program calls to say and to ask what its tensors are; everything here runs with checking on or off."""

from shardwise._doors import door, listed

_NAMES = {
    **listed("shardwise.collectives.annotate", "assert_type assert_type_like assert_local_type"),
    **listed("shardwise.collectives.annotate", "assert_local_type_like merge_types mutate_type reinterpret_no_grad"),
    **listed("shardwise.collectives.queries", "get_local_type get_axis_local_type maybe_get_axis_local_type"),
    **listed("shardwise.collectives.queries", "has_local_type get_partition_spec typeof reveal_type"),
    **listed("shardwise.collectives.remesh", "reinterpret_mesh"),
    **listed("shardwise.interop.session", "TYPE_CHECKING is_type_checking"),
    **listed("shardwise.interop.scalar", "Scalar"),
    **listed("shardwise.interop.tracing", "trace"),
    **listed("shardwise.interop.tracebacks", "traceback_filtering"),
}

__getattr__, __dir__, __all__ = door(__name__, _NAMES)
