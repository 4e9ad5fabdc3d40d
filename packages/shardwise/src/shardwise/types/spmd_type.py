"""What does a user write as one type? ``SpmdType``: a type per mesh axis and, if need be, the order of the shards.

Keys and entries stay as written: what a name means depends on the mesh that is current where the type is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardwise._pictured import Pictured
from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, SpmdValueError, shown
from shardwise.diagnostics.respelling import Instead

from .aliases import AxisMapping, DeviceMeshAxis, PerMeshAxisSpmdTypesArg
from .placement import PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Shard, V
from .spec import PartitionSpec, entry_axes


@dataclass
class SpmdType(Pictured):
    """R, I, V, P or S(i) per mesh axis, and a partition spec for what S(i) cannot say.

    Errors: TypeError for a value that is no type, ValueError for an empty spec entry, SW131 if the types and the
    spec contradict each other. Names, negative dims and axes that share a dim are settled by ``assert_type``.

    Example:
        >>> kind = SpmdType({"dp": V, "tp": V}, PartitionSpec(("dp", "tp")))
        >>> print(typeof(assert_type(torch.ones(4), kind)))
        f32[4@(dp,tp)]
    """

    local_type: AxisMapping
    partition_spec: PartitionSpec | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.local_type, Mapping):
            raise SpmdArgumentError(
                f"SpmdType takes a dict from axes to types, got {shown(self.local_type)} of type "
                f"{type(self.local_type).__name__}",
                code="SW132",
            )
        for axis, placement in self.local_type.items():
            check_placement(axis, placement)
        if self.partition_spec is None:
            return
        if not isinstance(self.partition_spec, tuple):
            raise SpmdArgumentError(
                f"the partition spec of an SpmdType is a PartitionSpec, got one of type "
                f"{type(self.partition_spec).__name__}",
                code="SW132",
                help=("PartitionSpec(None, ...), one entry per dim",),
            )
        for dim, entry in enumerate(self.partition_spec):
            if isinstance(entry, tuple) and not entry:
                raise empty_entry(dim)
            for axis in entry_axes(entry):
                self._check_spec_axis(axis)
        for axis, placement in self.local_type.items():
            if isinstance(placement, Shard):
                raise SpmdTypeError(
                    f"{axis!r} is given as {placement} beside an explicit {self.partition_spec!r}; "
                    f"a sharding is said once, by S(i) or by the spec",
                    code="SW131",
                    help=(f"give {axis!r} as V and put it in the partition spec",),
                )

    def _check_spec_axis(self, axis: DeviceMeshAxis) -> None:
        placement = dict(self.local_type.items()).get(axis, V)
        if placement is not V and not isinstance(placement, Shard):
            raise spec_contradicted(axis, placement)


def spec_contradicted(axis: object, placement: object) -> SpmdTypeError:
    """The error for an axis that a partition spec shards over, and that is given as ``placement`` beside it."""
    said = repr(axis)
    help = f"{said}: V beside the spec, if it shards that dim"
    return SpmdTypeError(
        f"the partition spec shards a dim over {said}, but {said} is given as {placement}; an axis that shards is V",
        code="SW131",
        meant=(Instead(help, repr(placement), "spmd.V", beside=said),) if isinstance(axis, str) else (),
        said=repr(placement),
        beside=said if isinstance(axis, str) else "",
    )


def check_placement(axis: object, placement: object) -> None:
    """Refuse a value that is not R, I, V, P or S(i)."""
    if not isinstance(placement, (PerMeshAxisLocalSpmdType, Shard)):
        raise SpmdArgumentError(
            f"the type on axis {shown(axis)} must be R, I, V, P or S(i), got {shown(placement)} of type "
            f"{type(placement).__name__}",
            code="SW132",
            help=("S(0), with the dim",) if placement is Shard else (),
        )


TypeClaim = PerMeshAxisSpmdTypesArg | SpmdType | PartitionSpec | PerMeshAxisSpmdType
"""What an annotation may say: a dict from axes to types, an ``SpmdType``, a spec, or one type for every axis left."""


def empty_entry(dim: int) -> SpmdValueError:
    """The error for ``()`` written as a spec entry."""
    return SpmdValueError(
        f"the entry of the partition spec for dim {dim} is the empty tuple (); a dim that is not sharded is None",
        code="SW132",
        help=("PartitionSpec(..., None, ...)",),
    )
