"""shardwise: a type checker for distributed PyTorch programs.

Every public name is listed here with the module that defines it, and loaded on first use, so that importing shardwise
loads neither torch nor the checker.
"""

from shardwise._doors import door, listed

from . import rules as rules
from . import train as train

_NAMES = {
    # types
    **listed("shardwise.types.placement", "R I V P Replicate Invariant Varying Partial S Shard"),
    **listed("shardwise.types.placement", "PerMeshAxisLocalSpmdType PerMeshAxisSpmdType"),
    **listed("shardwise.types.aliases", "LocalSpmdType PerMeshAxisSpmdTypes DimSharding"),
    **listed("shardwise.types.spec", "PartitionSpec"),
    **listed("shardwise.types.spmd_type", "SpmdType"),
    **listed("shardwise.types.infer_marker", "Infer"),
    **listed("shardwise.types.tensor_sharding", "TensorSharding"),
    **listed("shardwise.types.errors", "SpmdTypeError"),
    # mesh
    **listed("shardwise.mesh.axis", "MeshAxis"),
    **listed("shardwise.mesh.normalize", "normalize_axis normalize_mesh normalize_partition_spec"),
    **listed("shardwise.mesh.current", "set_current_mesh current_mesh current_mesh_names current_mesh_all_names"),
    # annotation
    **listed("shardwise.collectives.annotate", "assert_type assert_type_like assert_local_type"),
    **listed("shardwise.collectives.annotate", "assert_local_type_like merge_types mutate_type reinterpret_no_grad"),
    **listed("shardwise.collectives.queries", "get_local_type get_axis_local_type maybe_get_axis_local_type"),
    **listed("shardwise.collectives.queries", "has_local_type get_partition_spec typeof reveal_type"),
    **listed("shardwise.collectives.remesh", "reinterpret_mesh"),
    **listed("shardwise.interop.scalar", "Scalar"),
    # collectives and coercions
    **listed("shardwise.collectives.communicate", "all_reduce all_gather reduce_scatter all_to_all unshard"),
    **listed("shardwise.collectives.coerce", "convert reinterpret shard invariant_to_replicate"),
    **listed("shardwise.collectives.redistribute", "redistribute"),
    **listed("shardwise.collectives.partial", "linear einsum matmul sum mean"),
    **listed("shardwise.interop.backend", "set_dist"),
    **listed("shardwise.collectives.dtensor", "dtensor_placement_to_spmd_type spmd_type_to_dtensor_placement"),
    **listed("shardwise.collectives.dtensor", "spmd_redistribute"),
    # verifying
    **listed("shardwise.verifier.run", "verify"),
    **listed("shardwise.interop.recording", "checkpoint_value"),
    # checker
    **listed("shardwise.interop.session", "TYPE_CHECKING is_type_checking"),
    **listed("shardwise.checker.scopes.activation", "typecheck"),
    **listed("shardwise.checker.scopes.regions", "local local_map no_typecheck register_no_typecheck"),
    **listed(
        "shardwise.checker.functions.autograd_functions", "register_autograd_function register_local_autograd_function"
    ),
    **listed("shardwise.checker.functions.autograd_functions", "register_local_backward_hook register_decomposition"),
    **listed("shardwise.interop.tracing", "trace"),
    **listed("shardwise.checker.scopes.randomness", "synchronised_rng"),
    **listed("shardwise.interop.tracebacks", "traceback_filtering"),
    # the step around the model
    **listed("shardwise.train.streams", "rng"),
    **listed("shardwise.train.contract", "TrainingContract"),
    **listed("shardwise.train.norm", "grad_norm clip_grad_norm_"),
}

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = door(__name__, _NAMES)
