"""What does a user's way of writing axes, types and specs mean under the current mesh?

Names become axes, axes of one rank disappear (nothing can differ along them), and what remains must be orthogonal.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Mapping, Sequence
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.types import spec as spec_module
from shardwise.types.aliases import Axis, DeviceMeshAxis, PartitionSpecEntry, PerMeshAxisSpmdTypesArg
from shardwise.types.axis_names import axis_named
from shardwise.types.placement import PerMeshAxisLocalSpmdType, Shard, resolve_dim
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.spmd_type import check_placement, empty_entry

from .axis import MeshAxis
from .entry import current_entry
from .orthogonal import check_orthogonal
from .program import group_expression, mesh_at_hand

MOST_DIMS = 64
"""As many as a tensor of PyTorch can have."""


def normalize_axis(axis: DeviceMeshAxis) -> MeshAxis:
    """The axis that a name, a process group or an axis stands for.

    Errors: SW904 for a name without a current mesh, SW902 for an unknown name, TypeError for no axis at all.
    Example:
        >>> normalize_axis("tp") is MeshAxis.of(4, 1)
        True
    """
    if isinstance(axis, str):
        axis = _named(axis)
    if isinstance(axis, MeshAxis):
        return axis
    if isinstance(axis, int):
        raise SpmdArgumentError(
            f"a mesh axis is given by its name, as a MeshAxis or as a process group, got {shown(axis)} of type "
            f"{type(axis).__name__}"
        )
    return MeshAxis.of(axis)


def _named(name: str) -> Axis:
    mesh = mesh_at_hand() if current_entry() is None else None
    return axis_named(name, () if mesh is None else (mesh.all_names,))


def format_axis(axis: object) -> str:
    """An axis in print: a name in quotes, a process group as its axis. Never fails, since error texts call it.

    Example:
        >>> format_axis("tp"), format_axis(MeshAxis.of(4, 1))
        ("'tp'", 'tp')
    """
    if isinstance(axis, (str, int, MeshAxis)):
        return repr(axis)
    try:
        return repr(MeshAxis.of(axis))
    except SpmdTypeError:
        return shown(axis)


def axis_argument(axis: MeshAxis) -> str:
    """An axis as an argument that can be pasted: its name in the current mesh, a process group of the program, else the
    call that makes it.
    """
    entry = mesh_at_hand(search=False)
    names = () if entry is None else sorted(name for name, one in entry.all_names.items() if one is axis)
    if names:
        return f'"{names[0]}"'
    group = group_expression(axis)
    if group is not None:
        return group
    sizes, strides = axis.layout.sizes, axis.layout.strides
    return f"MeshAxis.of({sizes[0]}, {strides[0]})" if len(sizes) == 1 else f"MeshAxis.from_layout({sizes}, {strides})"


def normalize_mesh(axes: Iterable[MeshAxis]) -> frozenset[MeshAxis]:
    """The axes of more than one rank. Errors: SW901 if they overlap, SW903 for what is no set of axes.

    Example:
        >>> sorted(normalize_mesh([MeshAxis.of(2, 4), MeshAxis.of(1, 1)]), key=str)
        [dp]
    """
    if not isinstance(axes, Iterable):
        raise SpmdArgumentError(f"a mesh is a set of axes, got one of type {type(axes).__name__}", code="SW903")
    kept = frozenset(axis for axis in map(normalize_axis, axes) if axis.size() > 1)
    check_orthogonal(sorted(kept, key=lambda axis: axis.sort_key), "the mesh")
    return kept


def _by_axis(types: PerMeshAxisSpmdTypesArg) -> ItemsView[Any, Any]:
    if not isinstance(types, Mapping):
        raise SpmdArgumentError(
            f"a type is given as a dict from mesh axis to placement, got {shown(types)}", code="SW132"
        )
    return types.items()


def normalize_local_type(types: PerMeshAxisSpmdTypesArg) -> dict[MeshAxis, PerMeshAxisLocalSpmdType]:
    """R, I, V or P per axis of more than one rank.

    Errors: TypeError for another value, SW130 for one axis under two spellings and types, SW901 for overlapping axes.
    Example:
        >>> normalize_local_type({"dp": R, "tp": P})
        {dp: R, tp: P}
    """
    result: dict[MeshAxis, PerMeshAxisLocalSpmdType] = {}
    for key, placement in _by_axis(types):
        if not isinstance(placement, PerMeshAxisLocalSpmdType):
            raise SpmdArgumentError(
                f"the local type on axis {format_axis(key)} must be R, I, V or P, got {shown(placement)}", code="SW132"
            )
        axis = normalize_axis(key)
        if axis.size() > 1:
            _put(result, axis, placement)
    check_orthogonal(result, "the type")
    return result


def _put(result: dict[MeshAxis, PerMeshAxisLocalSpmdType], axis: MeshAxis, placement: PerMeshAxisLocalSpmdType) -> None:
    if result.setdefault(axis, placement) != placement:
        raise SpmdTypeError(
            f"axis {axis!r} is given twice, under two spellings, as {result[axis]!r} and as {placement!r}", code="SW130"
        )


def normalize_partition_spec(spec: Sequence[PartitionSpecEntry]) -> PartitionSpec:
    """The same spec with names resolved, axes of one rank dropped, and every entry None, an axis, or a tuple.

    Errors: ValueError for ``()`` as an entry, SW901 if axes overlap or one is used twice.
    Example:
        >>> normalize_partition_spec([("dp", "tp"), None])
        PartitionSpec((dp, tp), None)
    """
    if isinstance(spec, str | bytes) or not isinstance(spec, Sequence):
        raise SpmdArgumentError(
            f"a partition spec has one entry per tensor dim, got one of type {type(spec).__name__}",
            code="SW132",
            help=("PartitionSpec(None, ...)",),
        )
    entries = []
    used: list[MeshAxis] = []
    for dim, entry in enumerate(spec):
        if isinstance(entry, (tuple, list)) and not entry:
            raise empty_entry(dim)
        axes = [axis for axis in map(normalize_axis, entry_axes(entry)) if axis.size() > 1]
        used += axes
        entries.append(make_entry(axes))
    check_orthogonal(used, "the partition spec")
    return PartitionSpec(*entries)


def sharding_axes(spec: PartitionSpec) -> set[MeshAxis]:
    """The axes of more than one rank that shard some dim."""
    return {axis for entry in normalize_partition_spec(spec) for axis in entry_axes(entry)}


def shard_types_to_partition_spec(
    types: PerMeshAxisSpmdTypesArg, ndim: int, axis_order: Sequence[DeviceMeshAxis] | None = None
) -> PartitionSpec:
    """The spec of length ``ndim`` that the S(i) among ``types`` say; other types are not looked at.

    ``axis_order`` gives the order, outermost first, of axes that share a dim; left out, they are to be written in the
    order of the mesh, outermost first.
    Without it these are to be written as the mesh has them, outermost first.
    Errors: SW132 for a dim that is out of range, SW131 if axes share a dim and their order is open.
    Example:
        >>> shard_types_to_partition_spec({"dp": S(1), "tp": S(1)}, 2, axis_order=("dp", "tp"))
        PartitionSpec(None, (dp, tp))
    """
    if not isinstance(ndim, int) or not 0 <= ndim <= MOST_DIMS:
        raise SpmdArgumentError(f"ndim is a number of dims from 0 to {MOST_DIMS}, got {shown(ndim)}", code="SW132")
    shards: dict[MeshAxis, int] = {}
    for key, placement in _by_axis(types):
        check_placement(key, placement)
        if isinstance(placement, Shard):
            axis = normalize_axis(key)
            dim = resolve_dim(placement, ndim)
            if axis.size() > 1 and shards.setdefault(axis, dim) != dim:
                raise SpmdTypeError(
                    f"axis {axis!r} is given twice, under two spellings, as S({shards[axis]}) and as S({dim})",
                    code="SW131",
                )
    order = [normalize_axis(axis) for axis in axis_order or ()]
    dims: list[list[MeshAxis]] = [[] for _ in range(ndim)]
    for axis, dim in shards.items():
        dims[dim].append(axis)
    entries = [make_entry(_in_order(axes, order, dim)) for dim, axes in enumerate(dims)]
    return normalize_partition_spec(entries)


def _in_order(axes: list[MeshAxis], order: list[MeshAxis], dim: int) -> list[MeshAxis]:
    if len(axes) < 2 or (not order and axes == sorted(axes, key=lambda axis: axis.sort_key)):
        return axes
    if not set(axes) <= set(order):
        listed = ", ".join(map(repr, sorted(axes, key=lambda axis: axis.sort_key)))
        raise SpmdTypeError(
            f"{listed} all shard dim {dim}, and S({dim}) does not say in which order: write them in the order of the "
            f"mesh, give axis_order or an explicit PartitionSpec",
            code="SW131",
            help=(f"PartitionSpec({'None, ' * dim}({listed}), ...), outermost axis first",),
        )
    return sorted(axes, key=order.index)


def partition_spec_to_shard_types(spec: Sequence[PartitionSpecEntry]) -> dict[MeshAxis, Shard]:
    """The S(i) per axis that ``spec`` says; the order of axes that share a dim is lost.

    Example:
        >>> partition_spec_to_shard_types(PartitionSpec(None, ("dp", "tp")))
        {dp: S(1), tp: S(1)}
    """
    normal = normalize_partition_spec(spec)
    return {axis: Shard(dim) for dim, entry in enumerate(normal) for axis in entry_axes(entry)}


def partition_spec_get_shard(spec: Sequence[PartitionSpecEntry] | None, axis: DeviceMeshAxis) -> Shard | None:
    """The S(i) that ``spec`` says for ``axis``, both as a user writes them; None if it says nothing.

    Example:
        >>> partition_spec_get_shard(PartitionSpec(None, "tp"), "tp")
        S(1)
    """
    if spec is None:
        return None
    return spec_module.partition_spec_get_shard(normalize_partition_spec(spec), normalize_axis(axis))
