"""What a tensor can be: placements per mesh axis, partition specs, whole types, and the errors about them."""

from shardwise._doors import door, listed

_NAMES = {
    **listed("shardwise.types.placement", "R I V P Replicate Invariant Varying Partial S Shard to_local_type"),
    **listed("shardwise.types.placement", "PerMeshAxisLocalSpmdType PerMeshAxisSpmdType"),
    **listed("shardwise.types.aliases", "DeviceMeshAxis DimSharding LocalSpmdType PartitionSpecEntry"),
    **listed("shardwise.types.aliases", "PerMeshAxisSpmdTypes PerMeshAxisSpmdTypesArg"),
    **listed("shardwise.types.spec", "PartitionSpec"),
    **listed("shardwise.types.spmd_type", "SpmdType"),
    **listed("shardwise.types.tensor_sharding", "TensorSharding normalize_dim_sharding"),
    **listed("shardwise.types.infer_marker", "Infer"),
    **listed("shardwise.types.tensor_type", "TensorType"),
    **listed("shardwise.types.notation", "TypedShape abbreviate format_type format_typed_shape parse"),
    **listed("shardwise.types.errors", "SpmdTypeError SpmdValueError SpmdArgumentError"),
    **listed("shardwise.types.errors", "RedistributeError DTensorPropagationError"),
    # Names need a mesh to be resolved in, so these live one room to the right.
    **listed("shardwise.mesh.normalize", "normalize_axis normalize_mesh normalize_partition_spec normalize_local_type"),
    **listed("shardwise.mesh.normalize", "shard_types_to_partition_spec partition_spec_to_shard_types format_axis"),
    **listed("shardwise.mesh.normalize", "partition_spec_get_shard"),
}

__getattr__, __dir__, __all__ = door(__name__, _NAMES)
