"""How does a signature name what users pass for axes and types? Aliases for annotations; nothing here does anything."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from .placement import AxisPlacement, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType


class AxisLike(Protocol):
    """A mesh axis or a process group: something with a number of ranks."""

    def size(self) -> int: ...


class Axis(AxisLike, Hashable, Protocol):
    """A mesh axis as types store it: a value whose ``sort_key`` orders axes outermost (largest stride) first."""

    @property
    def sort_key(self) -> tuple[tuple[int, ...], tuple[int, ...]]: ...


DeviceMeshAxis = str | AxisLike
"""How a mesh axis may be given: by its name in the current mesh, as a MeshAxis, or as a process group.

Example:
    >>> def ranks(axis: DeviceMeshAxis) -> int:
    ...     return normalize_axis(axis).size()
    >>> ranks("tp"), ranks(MeshAxis.of(2, 4)), ranks(mesh.get_group("tp"))
    (4, 2, 4)
"""

DeviceMeshAxes = DeviceMeshAxis | Sequence[DeviceMeshAxis]
"""One mesh axis, or several, outermost first."""

LocalSpmdType = dict[DeviceMeshAxis, PerMeshAxisLocalSpmdType]
"""R, I, V or P per mesh axis.

Example:
    >>> types: LocalSpmdType = {"dp": V, "tp": R}
    >>> print(typeof(assert_type(torch.ones(4), types)))
    f32[4] {dp: V, tp: R}
"""

PerMeshAxisSpmdTypes = dict[DeviceMeshAxis, PerMeshAxisSpmdType]
"""R, I, V, P or S(i) per mesh axis.

Example:
    >>> types: PerMeshAxisSpmdTypes = {"dp": S(0), "tp": R}
    >>> print(typeof(assert_type(torch.ones(4, 8), types)))
    f32[4@dp, 8] {tp: R}
"""


class PerMeshAxisSpmdTypesArg(Protocol):
    """Anything with ``items()`` that gives axes and R, I, V, P or S(i): a dict, whatever it is inferred to be.

    Example:
        >>> def typed(types: PerMeshAxisSpmdTypesArg) -> torch.Tensor:
        ...     return assert_type(torch.ones(4), types)
        >>> print(typeof(typed({"tp": S(0)})))
        f32[4@tp] {dp: R}
    """

    def items(self) -> Iterable[tuple[DeviceMeshAxis, AxisPlacement]]: ...


AxisMapping = Mapping[DeviceMeshAxis, AxisPlacement] | Mapping[str, AxisPlacement] | Mapping[AxisLike, AxisPlacement]
"""A dict from axes to types, as it is inferred: a Mapping is not covariant in its keys."""


class DeviceMeshLike(Protocol):
    """A ``torch.distributed`` DeviceMesh, as far as a mesh is read from one."""

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None: ...


MeshArgument = DeviceMeshLike | Mapping[str, AxisLike] | Iterable[AxisLike]
"""How a mesh may be given: a DeviceMesh, a dict from names to axes or process groups, or a set or sequence of them."""

PartitionSpecEntry = DeviceMeshAxis | tuple[DeviceMeshAxis, ...] | None
"""What shards one tensor dim: nothing, one axis, or several, outermost first.

Example:
    >>> entries: list[PartitionSpecEntry] = ["dp", ("cp", "tp"), None]
    >>> PartitionSpec(*entries)
    PartitionSpec('dp', ('cp', 'tp'), None)
"""

DimSharding = str | Sequence[str] | None
"""What shards one tensor dim of a DTensor, by mesh dim names.

Example:
    >>> normalize_dim_sharding(("cp", "tp"))
    ('cp', 'tp')
    >>> normalize_dim_sharding(None)
    ()
"""

BackwardOptions = Mapping[str, object]
"""Options of the collective that the gradient goes through: ``op_dtype``, ``out_dtype``, ``async_op``, ..."""
