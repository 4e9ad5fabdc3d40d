"""How does a signature name what users pass for axes and types? Aliases for annotations; nothing here does anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .placement import PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType


class AxisLike(Protocol):
    """A mesh axis or a process group: something with a number of ranks."""

    def size(self) -> int: ...


DeviceMeshAxis = str | AxisLike
"""How a mesh axis may be given: by its name in the current mesh, as a MeshAxis, or as a process group."""

LocalSpmdType = dict[DeviceMeshAxis, PerMeshAxisLocalSpmdType]
"""R, I, V or P per mesh axis."""

PerMeshAxisSpmdTypes = dict[DeviceMeshAxis, PerMeshAxisSpmdType]
"""R, I, V, P or S(i) per mesh axis."""


class PerMeshAxisSpmdTypesArg(Protocol):
    """Anything with ``items()`` that gives axes and their types."""

    def items(self) -> Iterable[tuple[Any, PerMeshAxisSpmdType]]: ...


PartitionSpecEntry = DeviceMeshAxis | tuple[DeviceMeshAxis, ...] | None
"""What shards one tensor dim: nothing, one axis, or several, outermost first."""

DimSharding = str | Sequence[str] | None
"""What shards one tensor dim of a DTensor, by mesh dim names."""
