"""The public names of ``shardwise.mesh``, typed; the module reads this file to know where each is defined."""

from .axis import MeshAxis as MeshAxis
from .axis import flatten_axes as flatten_axes
from .axis import set_printoptions as set_printoptions
from .current import CurrentMesh as CurrentMesh
from .current import current_entry as current_entry
from .current import current_mesh as current_mesh
from .current import current_mesh_all_names as current_mesh_all_names
from .current import current_mesh_names as current_mesh_names
from .current import mesh_of as mesh_of
from .current import set_current_mesh as set_current_mesh
from .layout import Layout as Layout
from .normalize import format_axis as format_axis
from .normalize import normalize_axis as normalize_axis
from .normalize import normalize_local_type as normalize_local_type
from .normalize import normalize_mesh as normalize_mesh
from .normalize import normalize_partition_spec as normalize_partition_spec
from .normalize import partition_spec_get_shard as partition_spec_get_shard
from .normalize import partition_spec_to_shard_types as partition_spec_to_shard_types
from .normalize import shard_types_to_partition_spec as shard_types_to_partition_spec
from .orthogonal import check_orthogonal as check_orthogonal
from .regions import axes_inside as axes_inside
from .regions import match_regions as match_regions
from .regions import reinterpret as reinterpret
