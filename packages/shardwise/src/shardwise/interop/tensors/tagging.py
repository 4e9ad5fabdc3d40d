"""Which type does a tensor carry? Reads and writes the tag, the one attribute that shardwise puts on a tensor.

A tag holds the interned type, the provenance per axis, and the alias cell that a tensor shares with its views: an
in-place write that changes the local type of one changes it for all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from shardwise.diagnostics.source import Site
from shardwise.mesh.axis import MeshAxis
from shardwise.types.notation import TypedShape
from shardwise.types.placement import PerMeshAxisLocalSpmdType, Placement
from shardwise.types.spec import PartitionSpec, entry_axes, make_entry
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType

from ..torch_compat import no_torch_function

ATTRIBUTE = "_shardwise"


class Origin:
    """Where a placement came from: ``text`` at ``site``, and the origin it was derived from, if any.

    ``gradient``  the origin in this history at which a gradient arrived by backward (``gradient_origin.py``), or None.
    ``sharding``  it was said there which dims are sharded, if only that none is.
    """

    __slots__ = ("gradient", "parent", "sharding", "site", "text")

    def __init__(self, site: Site | None, text: str, parent: Origin | None = None) -> None:
        self.site = site
        self.text = text
        self.parent = parent
        self.gradient: Any = None if parent is None else parent.gradient
        self.sharding = False


_WRITTEN = {Ground.ZERO: 0, Ground.UNIFORM: 1, Ground.CONSTANT: 2, Ground.ABSENT: 3}
"""What memory may hold, from the least to the most; a write through a view can only add to it."""


class Cell:
    """Shared by a tensor and its views: what in-place writes since it was made have changed.

    ``retyped``  local types.
    ``ground``   what the memory holds now, if that is more than zeros or constants; unknown: nobody can tell any more.
    """

    __slots__ = ("ground", "retyped")

    def __init__(self) -> None:
        self.retyped: dict[Any, Placement] | None = None
        self.ground: Ground | None = None


class Tag:
    """A tensor's type, its provenance and its alias cell.

    ``origin`` is one Origin for all axes, or a tuple aligned with ``type.axes``, or None. Read the type through
    ``current`` unless ``cell`` is None. A tag without a cell is immutable, and several tensors may carry the same one:
    the checker hands an operand's tag on to the result rather than making a new one.
    """

    __slots__ = ("cell", "origin", "type")

    def __init__(self, type: TensorType, origin: Any = None, cell: Cell | None = None) -> None:
        self.type = type
        self.origin = origin
        self.cell = cell

    def current(self) -> TensorType:
        """The type now, with what in-place writes through views have changed."""
        cell = self.cell
        if cell is None or (cell.ground is None and cell.retyped is None):
            return self.type
        if cell.ground is Ground.UNKNOWN:
            return UNKNOWN_TYPE
        if cell.retyped:
            changes = {axis: place for axis, place in cell.retyped.items() if self.type.get(axis) is not place}
            if changes:
                self.type = self.type.with_placements(changes)
        if cell.ground is not None and _is_more(cell.ground, self.type.ground):
            self.type = self.type.with_ground(cell.ground)
        return self.type

    def origin_of(self, axis: object) -> Origin | None:
        """Where this tensor's placement on ``axis`` came from."""
        if isinstance(self.origin, tuple):
            axes = self.type.axes
            return self.origin[axes.index(axis)] if axis in axes and axes.index(axis) < len(self.origin) else None
        return self.origin  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        # Plain containers only, so that checkpoints load with weights_only=True and without shardwise.
        return (OrderedDict, (list(_to_plain(self.current()).items()),))

    def __deepcopy__(self, memo: object) -> Tag:
        return Tag(self.current(), self.origin)

    def __copy__(self) -> Tag:
        return Tag(self.current(), self.origin, self.cell)

    def of_type(self, type: TensorType, origin: object) -> Tag:
        """The same memory under another type."""
        return Tag(type, origin, self.cell)

    def in_cell(self, cell: Cell) -> Tag:
        """The same with an alias cell."""
        return Tag(self.type, self.origin, cell)


@dataclass(frozen=True, slots=True)
class OwnLength:
    """The size of a dim that each rank of ``axis`` has found for itself, by values that vary there.

    ``site``  of the call that did; ``text`` says what the size is, ``instead`` how to have one that is equal.
    """

    axis: MeshAxis
    dim: int
    site: Site | None
    text: str
    instead: str


class RaggedTag(Tag):
    """The tag of a tensor with dims of an ``OwnLength``. Nothing that only knows ``Tag`` may hand it on."""

    __slots__ = ("lengths",)

    def __init__(self, type: TensorType, origin: Any, cell: Cell | None, lengths: tuple[OwnLength, ...]) -> None:
        super().__init__(type, origin, cell)
        self.lengths = lengths

    def of_type(self, type: TensorType, origin: Any) -> Tag:
        return RaggedTag(type, origin, self.cell, self.lengths)

    def in_cell(self, cell: Cell) -> Tag:
        return RaggedTag(self.type, self.origin, cell, self.lengths)


def _is_more(ground: Ground, before: Ground) -> bool:
    return _WRITTEN.get(ground, -1) > _WRITTEN.get(before, 3)


def tag_of(x: Any) -> Tag | None:
    """The tag of ``x``, or None if it carries none. Works on any object."""
    tag = getattr(x, ATTRIBUTE, None)
    if tag is None or tag.__class__ is Tag or isinstance(tag, Tag):
        return tag
    tag = Tag(_from_plain(tag))
    set_tag(x, tag)
    return tag


def type_of(x: Any) -> TensorType:
    """The type that ``x`` carries; ``UNTYPED`` if none."""
    tag = tag_of(x)
    return UNTYPED if tag is None else tag.current()


def set_tag(x: Any, tag: Tag | None) -> None:
    """Put ``tag`` on ``x``; None takes the annotation away."""
    if tag is None:
        x.__dict__.pop(ATTRIBUTE, None)
    else:
        setattr(x, ATTRIBUTE, tag)


def set_type(x: object, type: TensorType, origin: object = None) -> None:
    """Give ``x`` the type ``type``; views that share its memory follow on the local placements."""
    tag = tag_of(x)
    if tag is None or tag.cell is None:
        set_tag(x, Tag(type, origin) if tag is None else tag.of_type(type, origin))
        return
    before = tag.current()
    changed = {a: p for a, p in zip(type.axes, type.placements, strict=True) if before.get(a) is not p}
    if changed:
        tag.cell.retyped = {**(tag.cell.retyped or {}), **changed}
    if _is_more(type.ground, before.ground):
        tag.cell.ground = type.ground
    set_tag(x, tag.of_type(type, origin))


def forget_lengths(x: object) -> None:
    """No dim of ``x`` counts as one of an ``OwnLength`` from here on."""
    tag = tag_of(x)
    if isinstance(tag, RaggedTag):
        set_tag(x, Tag(tag.type, tag.origin, tag.cell))


def forget_memory(x: object) -> None:
    """Nothing is known any more of ``x`` and of all views that share its memory, now and later."""
    tag = tag_of(x)
    if tag is None or tag.cell is None:
        set_tag(x, Tag(UNKNOWN_TYPE))
    else:
        tag.cell.ground = Ground.UNKNOWN


def typed_shape(x: Any, type: TensorType | None = None) -> TypedShape:
    """The full type of ``x`` as printed: dtype, local shape, and ``type`` or else the type that it carries."""
    with no_torch_function():
        return TypedShape(
            str(getattr(x, "dtype", x.__class__.__name__)), sizes_of(x), type_of(x) if type is None else type
        )


def sizes_of(x: Any) -> tuple[int, ...]:
    """The local shape. What only knows how many dims it has, as strided nested tensors do, has dims of size 0."""
    shape = None if getattr(x, "is_nested", False) and str(x.layout) == "torch.strided" else getattr(x, "shape", None)
    return (0,) * getattr(x, "ndim", 0) if shape is None else tuple(shape)


def alias(view: object, base: object, type: TensorType, origin: object) -> None:
    """Tag ``view`` as a view of ``base``: its own type and spec, the alias cell of the base (both get one)."""
    tag = tag_of(base)
    if tag is None:
        tag = Tag(UNTYPED)
    if tag.cell is None:
        # A fresh tag, because a tag without a cell may be shared by unrelated tensors.
        tag = tag.in_cell(Cell())
        set_tag(base, tag)
    set_tag(view, Tag(type, origin, tag.cell))


def _axis_to_plain(axis: MeshAxis) -> list[list[int]]:
    return [list(axis.layout.sizes), list(axis.layout.strides)]


def _axis_from_plain(plain: list[list[int]]) -> MeshAxis:
    return MeshAxis.from_layout(plain[0], plain[1])


def _to_plain(type: TensorType) -> dict[str, object]:
    spec = None
    if type.spec is not None:
        spec = [[_axis_to_plain(axis) for axis in entry_axes(entry)] for entry in type.spec]
    return {
        "local": [[_axis_to_plain(axis), place.value] for axis, place in type.local.items()],
        "spec": spec,
        "ground": type.ground.value,
        "uneven": [_axis_to_plain(axis) for axis in sorted(type.uneven, key=lambda axis: axis.sort_key)],
    }


def _from_plain(plain: Any) -> TensorType:
    placements = {_axis_from_plain(axis): PerMeshAxisLocalSpmdType(place) for axis, place in plain["local"]}
    spec = None
    if plain["spec"] is not None:
        spec = PartitionSpec(*(make_entry([_axis_from_plain(axis) for axis in entry]) for entry in plain["spec"]))
    uneven = frozenset(_axis_from_plain(axis) for axis in plain.get("uneven", ()))
    return TensorType.of(placements, spec, Ground(plain["ground"]), uneven)
