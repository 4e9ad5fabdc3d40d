"""When may a type be overwritten? The deciding half of ``mutate_type`` and ``reinterpret_no_grad``.

Both check the type that an object has first and change nothing when it is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError, shown
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import normalize_axis
from shardwise.types.aliases import DeviceMeshAxis
from shardwise.types.placement import (
    UNKNOWN,
    I,
    P,
    Placement,
    R,
    Shard,
    resolve_dim,
    to_local_type,
)
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.spmd_type import check_placement
from shardwise.types.tensor_type import Ground, TensorType

from ..tensors.tagging import type_of
from .annotating import asserted_type
from .asserting import check_elements, commit, is_unspoken, ndim_of, requires_grad, settle
from .refining import overrule, refine


def mutate(x: object, axis: DeviceMeshAxis | None, src: object, dst: object) -> None:
    """Overwrite local types of ``x``; see ``mutate_type`` for the forms."""
    ndim = ndim_of(x)
    before = type_of(x)
    changes: dict[MeshAxis, tuple[Any, Any]] = {}
    try:
        changes = _changes(before, axis, src, dst)
        for one, (old, _) in changes.items():
            _check_is(before, one, old, ndim)
        after = _overwritten(before, {one: new for one, (_, new) in changes.items()}, ndim)
        check_elements(x, after)
    except SpmdTypeError as error:
        if error.code == "SW103" and is_unspoken(x):
            return
        if not settle(error, x, "mutate_type"):
            raise
        after = overrule(before, TensorType.of({one: to_local_type(new) for one, (_, new) in changes.items()}))
    commit(x, after, "mutate_type")


def reread(x: object, axis: DeviceMeshAxis, dst: object) -> None:
    """Swap R and I on one axis of an ``x`` without gradient."""
    try:
        after = _reread(x, axis, dst)
    except SpmdTypeError as error:
        if error.code == "SW103" and is_unspoken(x):
            return
        if not settle(error, x, "reinterpret_no_grad"):
            raise
        return
    if after is not None:
        commit(x, after, "reinterpret_no_grad")


def _reread(x: object, axis: DeviceMeshAxis, dst: object) -> TensorType | None:
    if dst is not R and dst is not I:
        raise SpmdValueError(f"reinterpret_no_grad reads R as I or I as R, got dst={shown(dst)}", code="SW202")
    if requires_grad(x):
        raise SpmdValueError(
            "reinterpret_no_grad is for tensors without gradient, and this one requires grad; R and I differ in their "
            "gradients",
            code="SW202",
            help=(f"convert(x, {axis!r}, src={R if dst is I else I}, dst={dst})",),
        )
    axis = normalize_axis(axis)
    if axis.size() == 1:
        return None
    before = type_of(x)
    place = _place_on(before, axis)
    if not (place.is_equal or place.is_unknown):
        raise SpmdTypeError(
            f"reinterpret_no_grad reads R as I or I as R, but the tensor is {place} on axis {axis!r}",
            code="SW130",
            axis=axis,
        )
    return before if place is dst else before.with_placements({axis: dst})


def _changes(
    before: TensorType, axis: DeviceMeshAxis | None, src: object, dst: object
) -> dict[MeshAxis, tuple[object, object]]:
    """Which axes go from what to what."""
    pairs: Mapping[Any, tuple[Any, Any]]
    if isinstance(src, Mapping) or isinstance(dst, Mapping):
        if axis is not None:
            raise SpmdValueError(f"mutate_type takes either axis={axis!r} or a dict of axes, not both", code="SW132")
        if isinstance(src, Mapping) and isinstance(dst, Mapping):
            if src.keys() != dst.keys():
                lone = ", ".join(map(repr, [*(src.keys() - dst.keys()), *(dst.keys() - src.keys())]))
                raise SpmdValueError(
                    f"src and dst of mutate_type must name the same axes, but only one of them has {lone}", code="SW132"
                )
            pairs = {one: (src[one], dst[one]) for one in src}
        elif isinstance(src, Mapping):
            pairs = {one: (src[one], dst) for one in src}
        else:
            assert isinstance(dst, Mapping), "one of the two is a dict"
            pairs = {one: (src, dst[one]) for one in dst}
    else:
        pairs = dict.fromkeys(before.axes if axis is None else (normalize_axis(axis),), (src, dst))
        check_placement("src", src)
        check_placement("dst", dst)
    changes: dict[MeshAxis, tuple[Any, Any]] = {}
    for name, (old, new) in pairs.items():
        check_placement(name, old)
        check_placement(name, new)
        one = normalize_axis(name)
        if one.size() > 1 and changes.setdefault(one, (old, new)) != (old, new):
            raise SpmdValueError(f"axis {one!r} is given twice, under two spellings", code="SW131")
    return changes


def _place_on(type: TensorType, axis: MeshAxis) -> Placement:
    place = type.get(axis, UNKNOWN if type.ground in (Ground.UNKNOWN, Ground.EMPTY) else None)
    if place is None:
        known = ", ".join(map(repr, type.axes)) or "none"
        raise SpmdTypeError(f"the tensor has no type on axis {axis!r}; its axes are: {known}", code="SW103")
    return place  # type: ignore[no-any-return]


def _check_is(type: TensorType, axis: MeshAxis, expected: Any, ndim: int) -> None:
    """Refuse a type that is not ``expected`` on ``axis``."""
    place, local = _place_on(type, axis), to_local_type(expected)
    constant = type.ground.is_constant and (local.is_equal or (local is P and type.ground is Ground.ZERO))
    if place is not local and not place.is_unknown and not constant:
        raise SpmdTypeError(
            f"src={expected} was expected on axis {axis!r}, but the tensor is {place}",
            code="SW130",
            axis=axis,
            said=repr(expected),
        )
    shard = partition_spec_get_shard(type.spec, axis)
    if isinstance(expected, Shard) and shard is not None and shard.dim != resolve_dim(expected, ndim):
        raise SpmdTypeError(
            f"src={expected} was expected on axis {axis!r}, but the tensor is {shard}",
            code="SW131",
            axis=axis,
            said=repr(expected),
        )


def _overwritten(before: TensorType, changes: dict[MeshAxis, Any], ndim: int) -> TensorType:
    """``before`` with the changes; an entry of the spec stays only while it still says the truth."""
    spec = before.spec
    if spec is not None:
        stale = []
        for axis, new in changes.items():
            shard = partition_spec_get_shard(spec, axis)
            if shard is not None and not (isinstance(new, Shard) and resolve_dim(new, ndim) == shard.dim):
                stale.append(axis)
        spec = spec.without(stale)
    local = {axis: to_local_type(new) for axis, new in changes.items()}
    plain = before.with_placements(local).with_spec(spec)
    shards = {axis: new for axis, new in changes.items() if isinstance(new, Shard)}
    return refine(plain, asserted_type((shards,), ndim), gradient_free=False)
