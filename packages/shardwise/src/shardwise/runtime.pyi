"""The public names of ``shardwise.runtime``, typed; the module reads this file to know where each is defined."""

from shardwise.interop.annotations.scalar import Scalar as Scalar
from shardwise.interop.calls.tracebacks import traceback_filtering as traceback_filtering
from shardwise.interop.calls.tracing import trace as trace
from shardwise.interop.running.session import TYPE_CHECKING as TYPE_CHECKING
from shardwise.interop.running.session import is_type_checking as is_type_checking

from .collectives.annotate import assert_local_type as assert_local_type
from .collectives.annotate import assert_local_type_like as assert_local_type_like
from .collectives.annotate import assert_type as assert_type
from .collectives.annotate import assert_type_like as assert_type_like
from .collectives.annotate import merge_types as merge_types
from .collectives.annotate import mutate_type as mutate_type
from .collectives.annotate import reinterpret_no_grad as reinterpret_no_grad
from .collectives.queries import get_axis_local_type as get_axis_local_type
from .collectives.queries import get_local_type as get_local_type
from .collectives.queries import get_partition_spec as get_partition_spec
from .collectives.queries import has_local_type as has_local_type
from .collectives.queries import maybe_get_axis_local_type as maybe_get_axis_local_type
from .collectives.queries import reveal_type as reveal_type
from .collectives.queries import typeof as typeof
from .collectives.remesh import reinterpret_mesh as reinterpret_mesh
