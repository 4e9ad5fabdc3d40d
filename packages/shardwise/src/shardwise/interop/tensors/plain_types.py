"""A type as lists and strings, as which it is pickled: processes and files exchange it without this package."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import PerMeshAxisLocalSpmdType
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import Ground, TensorType


def _axis_to_plain(axis: MeshAxis) -> list[list[int]]:
    return [list(axis.layout.sizes), list(axis.layout.strides)]


def _axis_from_plain(plain: list[list[int]]) -> MeshAxis:
    return MeshAxis.from_layout(plain[0], plain[1])


def to_plain(type: TensorType) -> dict[str, object]:
    spec = None
    if type.spec is not None:
        spec = [[_axis_to_plain(axis) for axis in entry_axes(entry)] for entry in type.spec]
    return {
        "local": [[_axis_to_plain(axis), place.value] for axis, place in type.local.items()],
        "spec": spec,
        "ground": type.ground.value,
        "uneven": [_axis_to_plain(axis) for axis in sorted(type.uneven, key=lambda axis: axis.sort_key)],
        "scale": [[_axis_to_plain(axis), str(e) if isinstance(e, Fraction) else e] for axis, e in type.scale.items()],
    }


def from_plain(plain: Any) -> TensorType:
    placements = {_axis_from_plain(axis): PerMeshAxisLocalSpmdType(place) for axis, place in plain["local"]}
    spec = None
    if plain["spec"] is not None:
        spec = PartitionSpec(*(make_entry([_axis_from_plain(axis) for axis in entry]) for entry in plain["spec"]))
    uneven = frozenset(_axis_from_plain(axis) for axis in plain.get("uneven", ()))
    scale = {_axis_from_plain(axis): Fraction(e) if isinstance(e, str) else e for axis, e in plain.get("scale", ())}
    return TensorType.of(placements, spec, Ground(plain["ground"]), uneven, scale)
