"""Does an annotation agree with what is known of a tensor? The second pure step of ``assert_type``.

Refining a current type by an asserted one yields a type or an error and changes nothing, so annotating is atomic. What
came of it is remembered, so an annotation in a loop costs a dictionary look-up.
"""

from __future__ import annotations

import ast
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument, sharding_axes
from shardwise.mesh.orthogonal import check_orthogonal
from shardwise.types.notation import format_placement, times_off
from shardwise.types.placement import I, P, Placement, R, Shard, V
from shardwise.types.spec import PartitionSpec, entry_axes, partition_spec_get_shard
from shardwise.types.tensor_type import Exponent, Ground, TensorType

_refined: dict[tuple[TensorType, TensorType, bool], TensorType] = {}


def refine(current: TensorType, asserted: TensorType, *, gradient_free: bool, name: str = "the tensor") -> TensorType:
    """``current`` with what ``asserted`` adds to it; ``name`` is what an error calls the tensor.

    An axis that is absent or unknown is set; an equal one stays; V becomes P, which is what V means where a sum is
    asked for. R is re-read as I only if ``gradient_free``: the two differ in their gradients alone.
    Errors: SW130 for a local type that contradicts, SW131 for a sharding that does, SW901 for overlapping axes.
    """
    key = (current, asserted, gradient_free)
    known = _refined.get(key)
    if known is None:
        known = _refined[key] = _refine(current, asserted, gradient_free, name)
    return known


def _refine(current: TensorType, asserted: TensorType, gradient_free: bool, name: str) -> TensorType:
    if not asserted.axes:
        return current
    if current.ground.is_constant or current.ground is Ground.EMPTY:
        return _claim_constant(current, asserted)
    for axis, wanted in asserted.local.items():
        place = current.get(axis)
        if not (
            place is None
            or place is wanted
            or place.is_unknown
            or (place.is_varying and wanted is P)
            or (gradient_free and place is R and wanted is I)
        ):
            raise conflict(name, axis, place, wanted, partition_spec_get_shard(current.spec, axis))
        _check_scale(current, asserted, axis, wanted, name)
    placements: dict[Any, Placement] = {**dict(zip(current.axes, current.placements, strict=True)), **asserted.local}
    check_orthogonal(placements, "the type")
    kept = current.with_placements(asserted.local).spec
    ground = Ground.UNKNOWN if current.ground is Ground.UNKNOWN else Ground.ABSENT
    told = {
        axis: exponent
        for axis, exponent in current.scale.items()
        if axis in current and not (exponent is None and axis in asserted and _states_scale(asserted, axis))
    }
    scale = {**asserted.scale, **told}
    return TensorType.of(placements, _refine_spec(kept, asserted.spec, name), ground, current.uneven, scale)


def _check_scale(current: TensorType, asserted: TensorType, axis: MeshAxis, wanted: Placement, name: str) -> None:
    """Refuse a claim of R, I, S or P(avg) for a value that is on another scale; a plain P or V claims none."""
    exponent, claimed = current.exponent(axis), asserted.scale.get(axis, 0)
    states = _states_scale(asserted, axis)
    if exponent is None or exponent == claimed or not states or (wanted is P and current.is_varying(axis)):
        return
    shown, by = format_placement(current, axis), exponent - (claimed or 0)
    large = by > 0
    off = f"{times_off(axis.size(), by)} times too {'large' if large else 'small'}"
    way = f"divide by mesh.size({axis_argument(axis)})" if large else f"multiply by mesh.size({axis_argument(axis)})"
    if not isinstance(by, int):
        way = f"mend the scale of what the root was taken of: {way} there"
    raise SpmdTypeError(
        f"{name} is {shown} on axis {axis!r}, {off} for what it is said to be",
        code="SW152",
        help=(f"{way}, or average where it is summed" if large else f"{way}, or leave out the division by it",),
        axis=axis,
    )


def _states_scale(asserted: TensorType, axis: MeshAxis) -> bool:
    """A claim of R, I, S or P(avg) says on which scale the value is; a plain P or V does not."""
    sharded = partition_spec_get_shard(asserted.spec, axis) is not None
    return asserted.get(axis).is_equal or asserted.scale.get(axis, 0) != 0 or sharded


def _claim_constant(current: TensorType, asserted: TensorType) -> TensorType:
    """A value that is equal on every rank, or not written yet, may be meant as anything."""
    others = {axis: place for axis, place in current.local.items() if axis not in asserted.local}
    axes = [*asserted.axes, *others]
    if others and not axes[0].isorthogonal(*axes[1:]):
        others = {}  # made under another presentation of the ranks
    scale: dict[MeshAxis, Exponent] = dict(asserted.scale)
    if current.ground is Ground.ZERO:  # zero has every exponent: what is added to it brings the scale
        scale.update((axis, None) for axis in asserted.axes if not _states_scale(asserted, axis))
    return TensorType.of({**others, **asserted.local}, asserted.spec, scale=scale)


def with_lengths(type: TensorType, asserted: TensorType, even: bool) -> TensorType:
    """``type`` with the shards that ``asserted`` names said to be of one length, or said not to be.

    Errors: SW132 if it names none, or if ``even`` is no truth value.
    """
    if not isinstance(even, bool):
        raise SpmdArgumentError(f"even is True, False or left out, got {shown(even)}", code="SW132")
    named = set() if asserted.spec is None else sharding_axes(asserted.spec)
    if not named:
        raise SpmdTypeError(
            f"even={even} speaks of shards, and the type given names none",
            code="SW132",
            help=(f'assert_type(x, {{"axis": S(0)}}, even={even})',),
        )
    return type.with_uneven(type.uneven - named if even else type.uneven | named)


def _refine_spec(current: PartitionSpec | None, asserted: PartitionSpec | None, name: str) -> PartitionSpec | None:
    """Two normalised specs as one, dim by dim: None says nothing, equal entries stay. Errors: SW131."""
    if current is None or asserted is None:
        return asserted if current is None else current
    home = {axis: dim for dim, entry in enumerate(current) for axis in entry_axes(entry)}
    entries = list(current)
    for dim, entry in enumerate(asserted):
        if entry is None or entry == current[dim]:
            continue
        for axis in entry_axes(entry):
            if home.get(axis, dim) != dim:
                raise SpmdTypeError(
                    f"axis {axis!r} is said to shard dim {dim} of {name}, but it shards dim {home[axis]}",
                    code="SW131",
                    said=repr(Shard(dim)),
                    beside=axis_argument(axis),
                    axis=axis,
                )
        if current[dim] is not None:
            raise SpmdTypeError(
                f"dim {dim} of {name} is said to be sharded over {_format_entry(entry)}, but it is sharded over "
                f"{_format_entry(current[dim])}",
                code="SW131",
            )
        entries[dim] = entry
    return PartitionSpec(*entries)


def _format_entry(entry: object) -> str:
    axes = entry_axes(entry)
    return repr(axes[0]) if len(axes) == 1 else "(" + ", ".join(map(repr, axes)) + ")"


def overrule(current: TensorType, asserted: TensorType) -> TensorType:
    """The asserted type where it speaks, the current one elsewhere: what a run goes on with after a conflict."""
    kept = current.with_placements(asserted.local)
    axes = kept.axes
    if axes and not axes[0].isorthogonal(*axes[1:]):
        return asserted
    spec = kept.spec
    if spec is not None and asserted.spec is not None:
        spec = spec.without(sharding_axes(asserted.spec))
    if asserted.spec is not None:
        pairs = zip(spec or asserted.spec, asserted.spec, strict=True)
        spec = PartitionSpec(*(old if new is None else new for old, new in pairs))
    return TensorType.of(zip(axes, kept.placements, strict=True), spec, scale=kept.scale)


def conflict(name: str, axis: MeshAxis, place: Any, wanted: Any, shard: Shard | None = None) -> SpmdTypeError:
    """The error for a tensor that is ``place`` on ``axis``, cut as ``shard`` says, and is said to be ``wanted``."""
    call = _REMEDY.get((place, wanted))
    operand = name if _is_expression(name) else "x"
    expert = ", expert_mode=True" if (place, wanted) == (R, V) else ""
    stacks = ", which puts the ranks' values on a new dim 0" if call == "all_gather" and shard is None else ""
    step = f"{axis_argument(axis)}, src={shard or place}, dst={wanted}{expert}"
    remedy = () if call is None else (f"{call}({operand}, {step}){stacks}",)
    return SpmdTypeError(
        f"{name} is {place} on axis {axis!r}, but it is said to be {wanted}", code="SW130", help=remedy, axis=axis
    )


def _is_expression(name: str) -> bool:
    """Is it how the source writes the tensor, and no description of it?"""
    try:
        ast.parse(name, mode="eval")
    except SyntaxError:
        return False
    return True


def kept_value(place: Any, wanted: Any, shard: Shard | None) -> str | None:
    """The call that makes ``wanted`` of it and keeps what it denotes and its shape as one tensor; None if none does."""
    if (place, wanted) == (R, V) or (shard is None and V in (place, wanted)):
        return None
    return _REMEDY.get((place, wanted))


# The call that makes the one out of the other. None for (R, I) and (I, P): forward code rarely means those.
_REMEDY = {
    (R, V): "reinterpret",
    (I, V): "reinterpret",
    (R, P): "convert",
    (I, R): "convert",
    (V, R): "all_gather",
    (V, I): "all_gather",
    (P, R): "all_reduce",
    (P, I): "all_reduce",
    (P, V): "reduce_scatter",
}
