"""Where ranks sit: layouts, mesh axes and their names, the current mesh, and regions of ranks."""

from shardwise._doors import door, listed

from . import normalize as _normalize  # noqa: F401  teaches partition specs what axis names mean

_NAMES = {
    **listed("shardwise.mesh.layout", "Layout"),
    **listed("shardwise.mesh.axis", "MeshAxis flatten_axes register_axis_source set_printoptions"),
    **listed("shardwise.mesh.orthogonal", "check_orthogonal"),
    **listed("shardwise.mesh.normalize", "normalize_axis normalize_mesh normalize_partition_spec normalize_local_type"),
    **listed("shardwise.mesh.normalize", "shard_types_to_partition_spec partition_spec_to_shard_types format_axis"),
    **listed("shardwise.mesh.normalize", "partition_spec_get_shard"),
    **listed("shardwise.mesh.current", "CurrentMesh current_entry current_mesh current_mesh_names"),
    **listed("shardwise.mesh.current", "current_mesh_all_names mesh_of set_current_mesh"),
    **listed("shardwise.mesh.regions", "axes_inside match_regions reinterpret"),
}

__getattr__, __dir__, __all__ = door(__name__, _NAMES)
