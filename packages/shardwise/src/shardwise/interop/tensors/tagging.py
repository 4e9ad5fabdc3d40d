"""Which type does a tensor carry? Reads and writes the tag, the one attribute that shardwise puts on a tensor.

A tag holds the interned type, the provenance per axis, and the alias cell that a tensor shares with its views: an
in-place write that changes the local type of one changes it for all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shardwise.diagnostics.source import Site
from shardwise.mesh.regions import exponent_over, set_along
from shardwise.types.notation import TypedShape
from shardwise.types.placement import Placement
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Exponent, Ground, TensorType

from ..torch_compat import base_of, no_torch_function, storage_of
from .memory_pieces import MemoryPieces, Piece, joined_type, laid_into, region_of
from .plain_types import from_plain, to_plain
from .reordered import reordered_along

ATTRIBUTE = "_shardwise"
_CELL = "_shardwise_cell"
"""Where a storage keeps the cell of its pieces, for tensors that share it without having been made as views."""


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


Provenance = Origin | tuple[Origin | None, ...] | None
"""Where a type came from: all of it, or each axis."""

_WRITTEN = {Ground.EMPTY: 0, Ground.ZERO: 1, Ground.UNIFORM: 2, Ground.CONSTANT: 3, Ground.ABSENT: 4}
"""What memory may hold, from the least to the most; a write through a view can only add to it."""
_FORGOTTEN = 0
"""The number of no write: nobody can tell any more what the memory holds."""


class Writes:
    """What in-place writes have changed of memory.

    Each entry has the number of the write that it is of: a view that was made after it has a type of its own.

    ``count``    of writes.
    ``retyped``  local types.
    ``rescaled`` exponents of the scale, by axis.
    ``ground``   what the memory holds now, if that is more than zeros or constants.
    ``pieces``   the types of its elements, where they differ or once did; then nothing else here counts.
    ``origins``  where what is ``retyped`` came from.
    """

    __slots__ = ("count", "ground", "origins", "pieces", "rescaled", "retyped")

    def __init__(self) -> None:
        self.count = 0
        self.rescaled: dict[Any, tuple[int, Exponent]] = {}
        self.retyped: dict[Any, tuple[int, Placement]] = {}
        self.ground: tuple[int, Ground] | None = None
        self.pieces: MemoryPieces | None = None
        self.origins: dict[Any, tuple[int, Origin | None]] = {}


class Cell:
    """Shared by a tensor and its views: the ``writes`` since it was made that have changed a type, None before one."""

    __slots__ = ("__weakref__", "writes")

    def __init__(self) -> None:
        self.writes: Writes | None = None

    def written(self) -> Writes:
        """What a write has changed is put here."""
        if self.writes is None:
            self.writes = Writes()
        return self.writes


class Tag:
    """A tensor's type, its provenance and its alias cell.

    ``origin`` is one Origin for all axes, or a tuple aligned with ``type.axes``, or None. Read the type through
    ``current`` unless ``cell`` is None. A tag without a cell is immutable, and several tensors may carry the same one:
    the checker hands an operand's tag on to the result rather than making a new one. ``since`` is how many writes into
    the memory there had been when the tag was made: its type knows of them.
    """

    __slots__ = ("cell", "origin", "since", "type")

    def __init__(self, type: TensorType, origin: Provenance = None, cell: Cell | None = None) -> None:
        self.type = type
        self.origin = origin
        self.cell = cell
        self.since = 0 if cell is None or cell.writes is None else cell.writes.count

    def current(self) -> TensorType:
        """The type now, with what in-place writes through views have changed; in pieces, that of the whole memory."""
        writes = None if self.cell is None else self.cell.writes
        if writes is None:
            return self.type
        if writes.pieces is not None:
            return self.of_pieces(writes.pieces.pieces)
        if writes.ground is not None and writes.ground[0] == _FORGOTTEN:
            return UNKNOWN_TYPE if writes.ground[1] is Ground.UNKNOWN else UNTYPED
        if writes.count > self.since:
            self._follow(writes)
        return self.type

    def _follow(self, writes: Writes) -> None:
        """Take over what has been written since the tag was made."""
        latest = sorted(writes.retyped.items(), key=lambda item: item[1][0])
        retyped = {axis: place for axis, (at, place) in latest if at > self.since}
        changes = {axis: place for axis, place in retyped.items() if self.type.get(axis) is not place}
        if changes:
            self.type = set_along(self.type, changes)
        rescaled = {axis: e for axis, (at, e) in writes.rescaled.items() if at > self.since}
        if rescaled:  # a view may be said with axes of another mesh
            self.type = self.type.rescaled(
                {
                    axis: exponent_over(axis, rescaled)
                    for axis in self.type.axes
                    if axis in rescaled or any(not axis.isorthogonal(one) for one in rescaled)
                }
            )
        if writes.ground is not None and writes.ground[0] > self.since and _is_more(writes.ground[1], self.type.ground):
            self.type = self.type.with_ground(writes.ground[1])

    @property
    def pieces(self) -> MemoryPieces | None:
        """The types of the elements of the memory, if it is known piece by piece."""
        writes = None if self.cell is None else self.cell.writes
        return None if writes is None else writes.pieces

    def of_pieces(self, pieces: Sequence[Piece]) -> TensorType:
        """The type of a tensor with this tag that consists of ``pieces``."""
        type = joined_type(piece.type for piece in pieces) if pieces else self.type
        if type.axes != self.type.axes or self.type.ground is not Ground.ABSENT or type.ground is not Ground.ABSENT:
            return type
        return self.type.with_placements(dict(zip(type.axes, type.placements, strict=True))).with_scale(type.scale)

    @property
    def own_type(self) -> TensorType:
        """The type now, without what is known of the memory piece by piece."""
        return self.type if self.pieces is not None else self.current()

    def type_for(self, x: object) -> TensorType:
        """The type of ``x``, which carries this tag."""
        return self.current() if self.pieces is None else self.of_pieces(pieces_of(x, self))

    def origin_of(self, axis: object) -> Origin | None:
        """Where this tensor's placement on ``axis`` came from."""
        writes = None if self.cell is None else self.cell.writes
        if writes is not None and axis in writes.origins and writes.origins[axis][0] > self.since:
            return writes.origins[axis][1]
        if isinstance(self.origin, tuple):
            axes = self.type.axes
            return self.origin[axes.index(axis)] if axis in axes and axes.index(axis) < len(self.origin) else None
        return self.origin

    def __reduce__(self) -> tuple[object, ...]:
        # Plain containers only, so that checkpoints load with weights_only=True and without shardwise.
        return (OrderedDict, (list(to_plain(self.current()).items()),))

    def __deepcopy__(self, memo: object) -> Tag:
        return Tag(self.current(), self.origin)

    def __copy__(self) -> Tag:
        return Tag(self.current(), self.origin, self.cell)

    def of_type(self, type: TensorType, origin: Provenance) -> Tag:
        """The same memory under another type."""
        return Tag(type, origin, self.cell)

    def in_cell(self, cell: Cell) -> Tag:
        """The same with an alias cell."""
        return Tag(self.type, self.origin, cell)


def _is_more(ground: Ground, before: Ground) -> bool:
    return _WRITTEN.get(ground, -1) > _WRITTEN.get(before, _WRITTEN[Ground.ABSENT])


def tag_of(x: object) -> Tag | None:
    """The tag of ``x``, or None if it carries none. Works on any object."""
    tag = getattr(x, ATTRIBUTE, None)
    if tag is None or tag.__class__ is Tag or isinstance(tag, Tag):
        return tag
    tag = Tag(from_plain(tag))
    set_tag(x, tag)
    return tag


def type_of(x: object) -> TensorType:
    """The type that ``x`` carries; ``UNTYPED`` if none."""
    tag = tag_of(x)
    return UNTYPED if tag is None else tag.type_for(x)


def is_pieced(x: object) -> bool:
    """True if the memory of ``x`` is known piece by piece."""
    tag = tag_of(x)
    return tag is not None and tag.pieces is not None


def pieces_of(x: Any, tag: Tag | None = None) -> list[Piece]:
    """The pieces that ``x`` consists of, in its order as far as it is laid out in it; none if its type says all."""
    tag = tag_of(x) if tag is None else tag
    pieces = None if tag is None else tag.pieces
    if pieces is None:
        return []
    region = region_of(x)
    return [] if region is None else pieces.of(region.ranges)


def set_tag(x: object, tag: Tag | None) -> None:
    """Put ``tag`` on ``x``; None takes the annotation away."""
    if tag is None:
        x.__dict__.pop(ATTRIBUTE, None)
    else:
        setattr(x, ATTRIBUTE, tag)


def set_type(x: object, type: TensorType, origin: Provenance = None, *, whole: bool = True) -> None:
    """Give ``x`` the type ``type``; views that share its memory follow on the local placements and the scale.

    ``whole``  all of the memory has the scale of ``x`` now; else nobody knows that of its views.
    """
    tag = tag_of(x)
    if tag is None or tag.cell is None:
        set_tag(x, Tag(type, origin) if tag is None else tag.of_type(type, origin))
        return
    if tag.pieces is not None:
        set_part(x, type, origin)
        return
    before = tag.current()
    changed = {a: p for a, p in zip(type.axes, type.placements, strict=True) if before.get(a) is not p}
    # Of an axis that was unknown the views have no scale yet, whatever it is.
    new = {axis for axis in changed if axis not in before or before.get(axis).is_unknown}
    rescaled = {axis: e for axis in type.axes if (e := type.exponent(axis)) != before.exponent(axis) or axis in new}
    more = _is_more(type.ground, before.ground)
    if changed or rescaled or more:
        writes, told = tag.cell.written(), Tag(type, origin)
        writes.count += 1
        writes.retyped |= {axis: (writes.count, place) for axis, place in changed.items()}
        writes.origins |= {axis: (writes.count, told.origin_of(axis)) for axis in changed}
        first = before.ground is Ground.EMPTY  # nothing of any scale is beside it
        writes.rescaled |= {axis: (writes.count, e if whole or first else None) for axis, e in rescaled.items()}
        if more:
            beside = first and not whole and type.ground is not Ground.ABSENT
            writes.ground = writes.count, Ground.CONSTANT if beside else type.ground
    set_tag(x, tag.of_type(type, origin))


def forget_memory(x: object, type: TensorType = UNKNOWN_TYPE) -> None:
    """Nothing is known any more of the memory of ``x``, or it is untyped data; of its elements, if it is in pieces."""
    if (tag := tag_of(x)) is None or tag.cell is None:
        set_tag(x, Tag(type))
    elif tag.pieces is None:
        tag.cell.written().ground = _FORGOTTEN, type.ground
    else:
        set_part(x, type, tag.origin)


def remember_memory(x: Any) -> None:
    """The storage of ``x`` knows from here on whose memory it is."""
    storage = storage_of(x)
    if storage is not None:
        setattr(storage, _CELL, adopt_memory(x).cell)


def forget_storage(storage: object) -> bool:
    """Nothing is known any more of what shares ``storage``; False if nobody has been remembered."""
    cell: Cell | None = getattr(storage, _CELL, None)
    if cell is not None:
        writes = cell.written()
        writes.ground, writes.pieces = (_FORGOTTEN, Ground.UNKNOWN), None
    return cell is not None


def adopt_memory(x: Any) -> Tag:
    """The tag of ``x``, with the alias cell that all who share its memory have as far as that is known."""
    tag = tag_of(x)
    if tag is not None and tag.cell is not None:
        return tag
    storage, base = storage_of(x), base_of(x)
    cell: Cell | None = getattr(storage, _CELL, None)
    if cell is None and base is not None and (own := tag_of(base)) is not None:
        cell = own.cell
    if cell is None:
        cell = Cell()
        if base is not None:
            set_tag(base, (tag_of(base) or Tag(UNTYPED)).in_cell(cell))
    tag = (Tag(UNTYPED) if tag is None else tag).in_cell(cell)
    set_tag(x, tag)
    return tag


def set_part(x: Any, type: TensorType, origin: Provenance, content: Sequence[Piece] = ()) -> None:
    """The elements of ``x`` have this type from here on, and what else is in their memory stays as it was.

    ``content``  pieces of another tensor, whose elements have been written one by one into ``x``: they say which
                 gradients these are.
    """
    with no_torch_function():
        tag, region, storage = adopt_memory(x), region_of(x), storage_of(x)
        cell = tag.cell
        if cell is None or region is None or storage is None:
            set_tag(x, tag.of_type(type, origin))
            return
        pieces = tag.pieces
        if pieces is None:
            base = base_of(x)
            kept = tag if base is None else tag_of(base) or tag
            whole = Piece(0, storage.nbytes(), local_type(kept.current()), kept.origin, None, x.element_size())
            pieces = cell.written().pieces = MemoryPieces(whole)
            setattr(storage, _CELL, cell)
        item = x.element_size()
    local = local_type(type)
    new = [Piece(start, stop, local, origin, None, item) for start, stop in region.ranges]
    if content:
        new = [replace(piece, type=local, origin=origin) for piece in laid_into(x, content)]
    pieces.put(new)
    set_tag(x, tag.of_type(type, origin))


def set_pieces(x: object, pieces: Sequence[Piece], origin: Provenance, spec: PartitionSpec | None = None) -> None:
    """``x`` consists of these pieces of memory, as ``laid_into`` gives them; ``spec`` says how all of it is cut."""
    set_part(x, UNTYPED, origin)
    tag = adopt_memory(x)
    replace_pieces(x, pieces)
    type = joined_type(piece.type for piece in pieces) if pieces else UNTYPED
    if spec is not None:
        type = type.with_spec(spec.without({axis for axis in type.axes if not type.is_varying(axis)}))
    set_tag(x, Tag(type, origin, tag.cell))


def replace_pieces(x: object, pieces: Sequence[Piece]) -> None:
    """These pieces of the memory of ``x``, which is known piece by piece, are something else now."""
    tag = tag_of(x)
    known = None if tag is None else tag.pieces
    if known is not None:
        known.put(pieces)


def local_type(type: TensorType) -> TensorType:
    """The type without what only one tensor has: its dims."""
    return (
        type
        if type.spec is None
        else TensorType.of(dict(zip(type.axes, type.placements, strict=True)), scale=type.scale)
    )


def told_type(x: object) -> TensorType:
    """The type of ``x`` for whoever asks: along axes of which its rows are in another order it varies."""
    type, axes = type_of(x), reordered_along(x)
    return type if type.spec is None or not axes else type.with_spec(type.spec.without(axes))


def typed_shape(x: object, type: TensorType | None = None) -> TypedShape:
    """The full type of ``x`` as printed: dtype, local shape, and ``type`` or else the type that it carries."""
    with no_torch_function():
        return TypedShape(
            str(getattr(x, "dtype", x.__class__.__name__)), sizes_of(x), told_type(x) if type is None else type
        )


def sizes_of(x: Any) -> tuple[int, ...]:
    """The local shape. What only knows how many dims it has, as strided nested tensors do, has dims of size 0."""
    shape = None if getattr(x, "is_nested", False) and str(x.layout) == "torch.strided" else getattr(x, "shape", None)
    return (0,) * getattr(x, "ndim", 0) if shape is None else tuple(shape)


def alias(view: object, base: object, type: TensorType, origin: Provenance) -> None:
    """Tag ``view`` as a view of ``base``: its own type and spec, the alias cell of the base (both get one)."""
    tag = tag_of(base)
    if tag is None:
        tag = Tag(UNTYPED)
    if tag.cell is None:
        # A fresh tag, because a tag without a cell may be shared by unrelated tensors.
        tag = tag.in_cell(Cell())
        set_tag(base, tag)
    set_tag(view, Tag(type, origin, tag.cell))
