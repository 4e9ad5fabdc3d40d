"""What does an annotation say? The first pure step of ``assert_type``; ``refining`` is the second.

The arguments of one call are merged, resolved in the current mesh and boiled down to one interned ``TensorType``:
the asserted type. It is remembered, so an annotation in a loop costs a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh, current_entry
from shardwise.mesh.normalize import (
    format_axis,
    normalize_axis,
    normalize_partition_spec,
    shard_types_to_partition_spec,
    sharding_axes,
)
from shardwise.mesh.orthogonal import check_orthogonal
from shardwise.mesh.program import mesh_at_hand
from shardwise.types.aliases import AxisMapping
from shardwise.types.placement import (
    PerMeshAxisLocalSpmdType,
    PerMeshAxisSpmdType,
    Shard,
    V,
    resolve_dim,
    to_local_type,
)
from shardwise.types.spec import PartitionSpec, entry_axes
from shardwise.types.spmd_type import SpmdType, check_placement
from shardwise.types.tensor_type import TensorType

_MEMO_LIMIT = 4096
_MESHES_LIMIT = 64
_Memo = dict[tuple[Any, ...], TensorType]
_memo_without_mesh: _Memo = {}
_memos: dict[int, tuple[Any, TensorType, _Memo]] = {}


def asserted_type(types: tuple[object, ...], ndim: int) -> TensorType:
    """The type that the arguments of ``assert_type`` claim for a tensor with ``ndim`` dims.

    Errors: SW131 and SW132 for claims that contradict themselves or the ndim, SW901 for overlapping axes, SW902 and
    SW904 for names that cannot be resolved.
    """
    entry = current_entry()
    memo = _memo_without_mesh if entry is None else _memo_of(entry)
    key: tuple[Any, ...] | None = None
    known: TensorType | None = None
    try:
        if len(types) == 1 and types[0].__class__ is dict:
            key = (ndim, dict, *types[0].items())
        else:
            key = (ndim, *map(_key, types))
        known = memo.get(key)
    except (TypeError, AttributeError):
        key = None  # not hashable or of a wrong kind, which merge will say
    if known is None:
        claim = merge(types)
        known = _resolve(claim, ndim)
        if key is not None and _may_be_kept(claim) and (entry is not None or _means_the_same_anywhere(types)):
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            memo[key] = known
    return known


def _memo_of(entry: CurrentMesh) -> _Memo:
    """What is remembered under this mesh. Names and axes decide what an argument means, and nothing else of a mesh."""
    names = entry.all_names
    known = _memos.get(id(names))
    # The memo keeps the names alive, so an equal id is the same object. It does not keep process groups alive.
    if known is not None and known[0] is names and known[1] is entry.constant:
        return known[2]
    equal = (one for one in list(_memos.values()) if one[1] is entry.constant and one[0] == names)
    memo = next((one[2] for one in equal), {})
    if len(_memos) >= _MESHES_LIMIT:
        _memos.clear()
    _memos[id(names)] = (names, entry.constant, memo)
    return memo


def _key(one: Any) -> object:
    kind = one.__class__
    if kind is SpmdType:
        return kind, tuple(one.local_type.items()), one.partition_spec
    if kind is PartitionSpec:
        return kind, one
    return (kind, *one.items()) if hasattr(one, "items") else one


def _means_the_same_anywhere(types: tuple[object, ...]) -> bool:
    """Do the claims name axes by themselves? A name, or a bare type, is read by the program's own mesh."""
    mappings = [one.local_type if isinstance(one, SpmdType) else one for one in types]
    return all(isinstance(one, Mapping) and not any(isinstance(axis, str) for axis in one) for one in mappings)


def _may_be_kept(claim: SpmdType) -> bool:
    """No process groups in the memo: it would keep them alive after ``destroy_process_group``."""
    axes = [*claim.local_type, *(axis for entry in claim.partition_spec or () for axis in entry_axes(entry))]
    return all(isinstance(axis, (str, MeshAxis)) for axis in axes)


def merge(types: Iterable[Any]) -> SpmdType:
    """Several partial claims as one; axes are compared as written.

    Errors: SW132 for a kind of argument that is no claim or a second bare type, SW131 for claims that contradict each
    other, SW904 for a bare type without a mesh to fill.
    """
    local: dict[Any, Any] = {}
    spec: PartitionSpec | None = None
    bare: PerMeshAxisLocalSpmdType | None = None
    for one in types:
        if one is None:
            continue
        if isinstance(one, PerMeshAxisLocalSpmdType):
            if bare is not None:
                raise SpmdArgumentError(f"two bare types were given, {bare} and {one}, expected one", code="SW132")
            bare = one
        elif is_spec(one):
            spec = _merge_spec(spec, PartitionSpec(*one))
        elif isinstance(one, SpmdType):
            _merge_local(local, one.local_type.items())
            spec = _merge_spec(spec, one.partition_spec)
        elif isinstance(one, Mapping) or (hasattr(one, "items") and not isinstance(one, type)):
            _merge_local(local, one.items())
        else:
            raise SpmdArgumentError(
                f"{shown(one)} of type {type(one).__name__} is not a type; expected R, I, V or P, a dict from axes to "
                f"types, an SpmdType or a PartitionSpec",
                code="SW132",
                help=(f'{{"axis": {one}}}',) if isinstance(one, Shard) else (),
            )
    if bare is not None:
        _fill(local, spec, bare)
    return SpmdType(local, spec)


def is_spec(one: object) -> bool:
    """True for a PartitionSpec and for a tuple that reads as one: its entries are None, axes and tuples of axes."""
    if isinstance(one, PartitionSpec):
        return True
    return isinstance(one, tuple) and not any(
        isinstance(axis, (PerMeshAxisLocalSpmdType, Shard, Mapping)) for entry in one for axis in entry_axes(entry)
    )


def _merge_local(local: dict[object, object], items: Iterable[tuple[object, object]]) -> None:
    for axis, placement in items:
        check_placement(axis, placement)
        if local.setdefault(axis, placement) != placement:
            raise SpmdTypeError(
                f"axis {format_axis(axis)} is given as {local[axis]} and as {placement}, expected one type",
                code="SW131",
            )


def _merge_spec(one: PartitionSpec | None, other: PartitionSpec | None) -> PartitionSpec | None:
    if one is None or other is None:
        return other if one is None else one
    if one != other and normalize_partition_spec(one) != normalize_partition_spec(other):
        raise SpmdTypeError(f"two partition specs were given, {one!r} and {other!r}, expected one", code="SW131")
    return one


def _fill(local: dict[Any, object], spec: PartitionSpec | None, bare: PerMeshAxisLocalSpmdType) -> None:
    """Give every axis of the current mesh that is not mentioned the type ``bare``."""
    entry = mesh_at_hand()
    if entry is None:
        raise SpmdTypeError(
            f"the bare type {bare} means every axis of the current mesh, and there is none",
            code="SW904",
            help=("with set_current_mesh(mesh): ...", f'{{"axis": {bare}}}'),
        )
    named = {normalize_axis(axis) for axis in local}
    if spec is not None:
        named |= sharding_axes(spec)
    local.update({axis: bare for axis in entry.ordered_axes if axis not in named})


def _resolve(claim: SpmdType, ndim: int) -> TensorType:
    """``claim`` with names looked up, dims counted from the front and shards turned into a spec."""
    placements = _placements(claim.local_type, ndim)
    if claim.partition_spec is None:
        spec = shard_types_to_partition_spec(placements, ndim)
    else:
        spec = normalize_partition_spec(claim.partition_spec)
        if len(spec) != ndim:
            raise SpmdTypeError(
                f"{spec!r} has {len(spec)} entries for a tensor with {ndim} dims, expected one entry per dim",
                code="SW132",
            )
    local = {axis: to_local_type(placement) for axis, placement in placements.items()}
    for axis in sharding_axes(spec):
        if local.setdefault(axis, V) is not V:
            raise SpmdTypeError(
                f"the partition spec shards a dim over {axis!r}, but {axis!r} is given as {local[axis]}; an axis that "
                f"shards is V",
                code="SW131",
            )
    check_orthogonal(local, "the type")
    # A spec without any axis says what no spec says, and equal types are one object.
    return TensorType.of(local, spec if any(entry is not None for entry in spec) else None)


def _placements(local: AxisMapping, ndim: int) -> dict[MeshAxis, PerMeshAxisSpmdType]:
    """Per axis what ``local`` says, dims counted from the front; axes of one rank are left out.

    A name or a group after the axis itself corrects it: ``types = dict(get_local_type(x)); types[group] = I``.
    Errors: SW131 for an axis that is given twice otherwise.
    """
    placements: dict[MeshAxis, Any] = {}
    correctable: set[MeshAxis] = set()
    for key, placement in local.items():
        axis = normalize_axis(key)
        if isinstance(placement, Shard):
            placement = Shard(resolve_dim(placement, ndim))
        if axis.size() == 1:
            continue
        given = placements.get(axis, placement)
        if given != placement and axis not in correctable:
            raise SpmdTypeError(
                f"axis {axis!r} is given twice, under two spellings, as {given} and as {placement}", code="SW131"
            )
        placements[axis] = placement
        (correctable.add if key is axis else correctable.discard)(axis)
    return placements
