"""When do two presentations of the ranks describe the same region, and what is a type in the other one?

``(dp, cp, tp)`` and ``(edp, ep, etp)`` may be two cuts of the same ranks. Axes of both sides that overlap are brought
together in groups; where both sides of a group flatten to one layout and the types within it are uniform, the type
moves over without touching data: R on dp and cp is R on their flattening, and a sum pending over both is one sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.types.placement import UNKNOWN, I, Placement, R
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry, spec_of
from shardwise.types.tensor_type import Exponent, TensorType

from .axis import MeshAxis, flatten_axes

_DEBUG_HINT = "run with SHARDWISE_MESH_AXIS_DEBUG=1 to see the layout of every axis"


@dataclass(frozen=True, slots=True)
class Group:
    """Axes of two presentations that overlap each other, each side outermost first; ``source`` is not empty."""

    source: tuple[MeshAxis, ...]
    destination: tuple[MeshAxis, ...]


def reinterpret(
    type: TensorType,
    destination: Iterable[MeshAxis],
    wanted: Mapping[MeshAxis, Placement] | None = None,
    *,
    global_axes: Collection[MeshAxis] = (),
) -> TensorType:
    """``type`` said with the axes ``destination``; an axis of these that ``type`` says nothing about stays absent.

    ``wanted``       the whole result, if the caller knows it: it is compared, and must leave nothing open.
    ``global_axes``  destination axes whose shards must survive; the shards of others are forgotten where the new axes
                     cannot express them.
    Errors: SW133 if the regions differ or types within a group do.
    Example:
        >>> x = TensorType.of({MeshAxis.of(2, 4): R, MeshAxis.of(4, 1): R})
        >>> reinterpret(x, [MeshAxis.of(8, 1)])
        {{dp,tp}: R}
    """
    destination = frozenset(axis for axis in destination if axis.size() > 1)
    if wanted is None and all(axis in destination for axis in type.axes):
        return type
    moved = _moved(type, destination, frozenset(global_axes))
    if wanted is not None:
        _compare(moved, {axis: place for axis, place in wanted.items() if axis.size() > 1})
    return moved


# The checker asks for every operand that comes from another mesh; types and axes are interned, so asking is cheap.
@lru_cache(maxsize=4096)
def _moved(type: TensorType, destination: frozenset[MeshAxis], global_axes: frozenset[MeshAxis]) -> TensorType:
    groups = match_regions(type.axes, destination)
    placements = {axis: type.get(axis) for axis in type.axes if axis in destination}
    for group in groups:
        placements.update(dict.fromkeys(group.destination, _uniform(type, group)))
    spec = None if type.spec is None else _remap(type.spec, groups, destination, global_axes)
    if spec is not None:
        spec = spec.without({axis for axis, place in placements.items() if not place.is_varying})
    made = TensorType.of(placements, spec, type.ground, type.uneven, type.scale)
    # (n m)**e is n**e m**e: what axes are made of has their scale, and what is made of axes that of all of them.
    scale: dict[MeshAxis, Exponent] = {}
    for group in groups if type.scale else ():
        found = {type.exponent(axis) for axis in group.source}
        scale |= dict.fromkeys(group.destination, found.pop() if len(found) == 1 else None)
    return made.rescaled(scale)


def match_regions(source: Iterable[MeshAxis], destination: Collection[MeshAxis]) -> list[Group]:
    """The groups that every axis of ``source`` outside ``destination`` belongs to.

    Errors: SW133 if the two sides of a group are not the same ranks.
    Example:
        >>> match_regions([MeshAxis.of(8, 1)], [MeshAxis.of(2, 4), MeshAxis.of(4, 1)])
        [Group(source=({dp,tp},), destination=(dp, tp))]
    """
    source = frozenset(source)
    foreign = _ordered(axis for axis in source if axis not in destination)
    offered = _ordered(axis for axis in destination if axis not in source)
    groups = [_connected(start, foreign, offered) for start in foreign]
    unique = list(dict.fromkeys(groups))
    for group in unique:
        _check_same_region(group, destination)
    return unique


def axes_inside(whole: MeshAxis, axes: Iterable[MeshAxis]) -> tuple[MeshAxis, ...] | None:
    """Those of ``axes`` that lie in ``whole``, outermost first, if they make it up exactly; else None.

    Example:
        >>> axes_inside(MeshAxis.of(8, 1), [MeshAxis.of(2, 4), MeshAxis.of(4, 1)])
        (dp, tp)
    """
    inside = _ordered(axis for axis in axes if axis.size() > 1 and axis <= whole)
    if not inside or not inside[0].isorthogonal(*inside[1:]) or flatten_axes(inside) is not whole:
        return None
    return inside


def exponent_over(axis: MeshAxis, scale: Mapping[MeshAxis, Exponent]) -> Exponent:
    """The exponent along ``axis`` of what has these along axes that may be parts of it, or that it is part of.

    n m ranks that count something (n m)**e times count it n**e times along n of them, and the other way round. None
    where nobody knows it, or where the parts differ.

    Example:
        >>> exponent_over(MeshAxis.of(8, 1), {MeshAxis.of(2, 4): 1, MeshAxis.of(4, 1): 1})
        1
    """
    if axis in scale:
        return scale[axis]
    overlapping = _ordered(one for one in scale if not one.isorthogonal(axis))
    found = {scale[one] for one in overlapping}
    if len(found) != 1 or not overlapping[0].isorthogonal(*overlapping[1:]) or not axis <= flatten_axes(overlapping):
        return None
    return found.pop()


def cut_along(type: TensorType, axis: MeshAxis) -> TensorType:
    """``type`` with ``axis`` standing by itself, where that is a part of an axis that it speaks of.

    What is so along the whole of an axis is so along each part of it: R on dp is R on every two neighbours of dp, and
    on what is left of dp. Axes that ``axis`` overlaps otherwise are unknown: no type has axes that overlap.

    Example:
        >>> cut_along(TensorType.of({MeshAxis.of(8, 1): P}), MeshAxis.of(4, 1))
        {dp: P, tp: P}
    """
    if axis in type or axes_inside(axis, type.axes) or axis.size() == 1:
        return type
    overlapping = [one for one in type.axes if not one.isorthogonal(axis)]
    if not overlapping:
        return type
    rest = overlapping[0].layout.divide(axis.layout)
    if len(overlapping) > 1 or rest is None:
        return type.with_placements(dict.fromkeys(overlapping, UNKNOWN))
    others = [one for one in type.axes if one is not overlapping[0]]
    return reinterpret(type, [*others, axis, MeshAxis(rest)])


def set_along(type: TensorType, changes: Mapping[MeshAxis, Placement]) -> TensorType:
    """``type`` with other placements along axes that may be parts of its own, or made of some; said as it was.

    Example:
        >>> set_along(TensorType.of({MeshAxis.of(8, 1): V}), {MeshAxis.of(2, 4): R, MeshAxis.of(4, 1): R})
        {{dp,tp}: R}
    """
    if all(axis in type for axis in changes):
        return type.with_placements(changes)
    own = type.axes
    for axis, place in changes.items():
        type = cut_along(type, axis)
        alone = axis in type or all(axis.isorthogonal(one) for one in type.axes)
        parts = (axis,) if alone else axes_inside(axis, type.axes) or ()
        type = type.with_placements(dict.fromkeys(parts, place))
    return put_together(type, own)


def put_together(type: TensorType, axes: Iterable[MeshAxis]) -> TensorType:
    """``type`` said with those of ``axes`` all of whose parts it has, with one placement: what ``cut_along`` has cut.

    Example:
        >>> put_together(TensorType.of({MeshAxis.of(2, 4): R, MeshAxis.of(4, 1): R}), [MeshAxis.of(8, 1)])
        {{dp,tp}: R}
    """
    for axis in axes:
        parts = () if axis in type else axes_inside(axis, type.axes) or ()
        if len({type.get(part) for part in parts}) == 1:
            type = reinterpret(type, [axis, *(one for one in type.axes if one not in parts)])
    return type


def _ordered(axes: Iterable[MeshAxis]) -> tuple[MeshAxis, ...]:
    return tuple(sorted(axes, key=lambda axis: axis.sort_key))


def _connected(start: MeshAxis, source: tuple[MeshAxis, ...], destination: tuple[MeshAxis, ...]) -> Group:
    """The smallest group around ``start``: axes that overlap, the axes that these overlap, and so on."""
    here, there = {start}, set[MeshAxis]()
    while True:
        more = {axis for axis in destination if any(not axis.isorthogonal(other) for other in here)} - there
        there |= more
        back = {axis for axis in source if any(not axis.isorthogonal(other) for other in there)} - here
        here |= back
        if not more and not back:
            return Group(_ordered(here), _ordered(there))


def _check_same_region(group: Group, destination: Iterable[MeshAxis]) -> None:
    if not group.destination:
        raise SpmdTypeError(
            f"the meshes look unrelated: no axis of {_listed(_ordered(destination))} overlaps "
            f"{_listed(group.source)}; {_DEBUG_HINT}",
            code="SW133",
        )
    before, after = _flattened(group.source), _flattened(group.destination)
    if before is None or before is not after:
        raise SpmdTypeError(
            f"{_listed(group.source)} and {_listed(group.destination)} overlap but flatten to different rank regions: "
            f"{_region(group.source, before)} against {_region(group.destination, after)}; {_DEBUG_HINT}",
            code="SW133",
        )


def _flattened(axes: tuple[MeshAxis, ...]) -> MeshAxis | None:
    return flatten_axes(axes) if axes[0].isorthogonal(*axes[1:]) else None


def _region(axes: tuple[MeshAxis, ...], flattened: MeshAxis | None) -> str:
    if flattened is None:
        return "axes that are not orthogonal"
    return f"{flattened.size()} ranks, {flattened.layout}"


def _uniform(type: TensorType, group: Group) -> Placement:
    places: dict[Placement, None] = dict.fromkeys(type.get(axis) for axis in group.source)
    if UNKNOWN in places:
        return UNKNOWN
    if len(places) > 1:
        types = ", ".join(f"{axis!r} is {type.get(axis)!r}" for axis in group.source)
        raise SpmdTypeError(
            f"{_listed(group.source)} would have to be flattened to become {_listed(group.destination)}, but their "
            f"types differ: {types}",
            code="SW133",
            help=_made_alike(type, group),
        )
    return next(iter(places))


def _made_alike(type: TensorType, group: Group) -> tuple[str, ...]:
    """What gives all axes of the group one type: whole along all of them, or a piece along all of them."""
    cut = [axis for axis in group.source if type.is_varying(axis)]
    whole = [axis for axis in group.source if type.get(axis) in (R, I)]
    if len(cut) + len(whole) < len(group.source) or not cut or not whole:
        return ()
    return (
        f"convert to S(i) over {_listed(tuple(whole))} before it, if each rank is to have a piece",
        f"all_gather over {_listed(tuple(cut))} before it, if each rank is to have the whole",
    )


def _compare(moved: TensorType, wanted: Mapping[MeshAxis, Placement]) -> None:
    for axis, place in wanted.items():
        if axis not in moved:
            raise SpmdTypeError(
                f"{axis!r} is wanted as {place!r}, but no axis of the tensor's type covers it; {_DEBUG_HINT}",
                code="SW133",
            )
        found = moved.get(axis)
        if found is not place and not found.is_unknown:
            raise SpmdTypeError(f"{axis!r} is wanted as {place!r}, but the tensor is {found!r} there", code="SW133")


def _remap(
    spec: PartitionSpec,
    groups: list[Group],
    destination: frozenset[MeshAxis],
    global_axes: Collection[MeshAxis],
) -> PartitionSpec | None:
    entries = []
    for dim, entry in enumerate(spec):
        kept, left = _remap_axes(entry_axes(entry), groups, destination)
        affected = _ordered(_destinations(left, groups))
        if any(axis in global_axes for axis in affected):
            raise SpmdTypeError(
                f"dim {dim} is sharded over {_listed(entry_axes(entry))}, and {_listed(affected)} cannot express the "
                f"part over {_listed(left)}: it is not a whole group of axes, outermost first",
                code="SW133",
            )
        entries.append(make_entry(kept))
    return spec_of(entries)


def _remap_axes(
    axes: tuple[MeshAxis, ...], groups: list[Group], destination: frozenset[MeshAxis]
) -> tuple[list[MeshAxis], tuple[MeshAxis, ...]]:
    """The axes of one entry as far as the destination can say them, and what is left from there inwards."""
    kept: list[MeshAxis] = []
    while axes:
        if axes[0] in destination:
            kept.append(axes[0])
            axes = axes[1:]
            continue
        group = next((group for group in groups if axes[: len(group.source)] == group.source), None)
        if group is None:
            break
        kept += group.destination
        axes = axes[len(group.source) :]
    return kept, axes


def _destinations(axes: Iterable[MeshAxis], groups: list[Group]) -> set[MeshAxis]:
    result = set()
    for axis in axes:
        group = next((group for group in groups if axis in group.source), None)
        result |= {axis} if group is None else set(group.destination)
    return result


def _listed(axes: Iterable[object]) -> str:
    axes = list(axes)
    return repr(axes[0]) if len(axes) == 1 else "(" + ", ".join(map(repr, axes)) + ")"
