"""A sharded tensor drawn: which rank holds which block, who holds the same, whose tensors are still to be added up.

A dim that is sharded is cut as ``torch.chunk`` cuts: ceil(length / ranks) indices for every rank, the last ones may
have fewer, or none. Of several axes on one dim each cuts the pieces of the one before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardwise.mesh.layout import Layout
from shardwise.mesh.names import NamedAxis
from shardwise.types.notation import TypedShape, format_placement
from shardwise.types.spec import entry_axes

from .mesh import offset_at
from .model import Block, Look, Picture, Sheets, Span, Tile, Words
from .model import Sequence as Blocks
from .nesting import Dim, DimPart, Place, indices, matrix_of_matrices
from .tensors import LIMIT, dim_names, fitting_limit

MOST_RANKS = 4
"""So many ranks are listed in a cell."""
MOST_SHEETS = 4

Coordinates = Mapping[NamedAxis, int]


@dataclass(frozen=True)
class MeshPoint:
    """An axis that stands in pictures without being one of a program: a name for a layout."""

    name: str
    layout: Layout

    @property
    def sort_key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(-stride for stride in self.layout.strides or (0,)), tuple(-size for size in self.layout.sizes)

    def size(self) -> int:
        return self.layout.numel()

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ShardRange:
    """Indices ``start`` to ``stop`` of a dim, and the place on each of its axes of the ranks that hold them."""

    start: int
    stop: int
    at: tuple[int, ...]


def pieces_of(length: int, counts: Sequence[int]) -> list[ShardRange]:
    """A dim cut over axes of these sizes, the outermost first; empty pieces included.

    Example:
        >>> [(one.start, one.stop) for one in pieces_of(5, [2])]
        [(0, 3), (3, 5)]
    """
    found = [ShardRange(0, length, ())]
    for count in counts:
        found = [
            ShardRange(min(one.start + at * step, one.stop), min(one.start + (at + 1) * step, one.stop), (*one.at, at))
            for one in found
            for step in (-(-(one.stop - one.start) // count),)
            for at in range(count)
        ]
    return found


class SpreadTensor:
    """A tensor of global ``shape`` with a type, on the ranks of a mesh.

    ``axes``  those of the mesh and of the type, outermost first. An axis that a type has and the mesh has not (two axes
              seen as one) replaces those of the mesh that it meets.
    """

    def __init__(self, typed: TypedShape, mesh: Sequence[NamedAxis]) -> None:
        self.typed, self.type = typed, typed.type
        own = list(self.type.axes)
        others = [axis for axis in mesh if axis not in own and all(axis.layout.isorthogonal(one.layout) for one in own)]
        self.axes: list[NamedAxis] = sorted([*own, *others], key=lambda axis: axis.sort_key)
        if set(self.axes) == set(mesh):
            self.axes = list(mesh)
        entries = self.type.spec or ()
        self.entries = [entry_axes(entry) for entry in entries] + [()] * (len(typed.shape) - len(entries))
        self.pieces = [
            pieces_of(length, [axis.size() for axis in axes])
            for length, axes in zip(typed.shape, self.entries, strict=True)
        ]

    @cached_property
    def sharded(self) -> list[NamedAxis]:
        return [axis for axes in self.entries for axis in axes]

    @cached_property
    def partial(self) -> list[NamedAxis]:
        return [axis for axis in self.axes if self.type.is_partial(axis)]

    @cached_property
    def apart(self) -> list[NamedAxis]:
        """Axes whose ranks hold tensors of their own: V, and no dim is sharded over them."""
        return [axis for axis in self.axes if self.type.is_varying(axis) and axis not in self.sharded]

    @cached_property
    def replicas(self) -> list[NamedAxis]:
        """Axes whose ranks all hold the same: R, I, and what is not said."""
        return [axis for axis in self.axes if axis not in (*self.sharded, *self.partial, *self.apart)]

    def rank(self, at: Coordinates) -> int:
        return sum(offset_at(axis.layout, at.get(axis, 0)) for axis in self.axes)

    def holders(self, at: Coordinates) -> str:
        """The ranks at these coordinates: ``0 + 1`` are addends of one sum, ``0 = 2`` hold the same."""
        groups = [_joined(" + ", self._ranks({**at, **more}, self.partial)) for more in self._product(self.replicas)]
        return _joined(" = ", groups)

    def _ranks(self, at: Coordinates, axes: Sequence[NamedAxis]) -> list[str]:
        return [str(self.rank({**at, **more})) for more in self._product(axes)]

    @staticmethod
    def _product(axes: Sequence[NamedAxis]) -> list[dict[NamedAxis, int]]:
        """All coordinates along these axes, the middle left out where there are very many."""
        shown = [_ends(axis.size()) for axis in axes]
        return [dict(zip(axes, at, strict=True)) for at in itertools.product(*shown)]

    def owned(self, rank_at: Coordinates) -> list[tuple[int, int]]:
        """Start and stop on every dim of what the rank at these coordinates holds."""
        found = []
        for axes, pieces in zip(self.entries, self.pieces, strict=True):
            number = 0
            for axis in axes:
                number = number * axis.size() + rank_at.get(axis, 0)
            found.append((pieces[number].start, pieces[number].stop))
        return found


def _ends(size: int) -> list[int]:
    return list(range(size)) if size <= 2 * MOST_RANKS else [*range(MOST_RANKS), *range(size - MOST_RANKS, size)]


def _joined(sign: str, items: Sequence[str]) -> str:
    items = list(items)
    if len(items) > MOST_RANKS:
        items = [*items[: MOST_RANKS - 2], "…", items[-1]]
    return sign.join(items)


def sharded_picture(
    typed: TypedShape,
    mesh: Sequence[NamedAxis],
    *,
    names: Sequence[str | None] | None = None,
    limit: int = LIMIT,
    ranks_too: bool = True,
) -> Picture:
    """Which rank holds which block of a tensor, and below it what each rank holds.

    ``typed``  its shape is that of the whole tensor.
    ``mesh``   the axes of the mesh, outermost first.
    """
    placed = SpreadTensor(typed, mesh)
    block = blocks_of(placed, names=names, limit=limit)
    if ranks_too and placed.axes:
        block = Blocks(
            (
                _titled("which rank holds which block", block),
                _titled("what each rank holds", ranks_of(placed, limit=limit)),
            ),
            gap=3,
        )
    told = ", ".join(f"{axis!r}={axis.size()}" for axis in placed.axes)
    title = f"{typed}" + (f" on {told}" if told else "")
    return Picture(title, describe(placed), block, notes_of(placed))


def _titled(title: str, block: Block) -> Block:
    return Blocks((Words((title,), Look.TITLE), block), across=False)


def blocks_of(placed: SpreadTensor, *, names: Sequence[str | None] | None = None, limit: int = LIMIT) -> Block:
    """The whole tensor, every block with the ranks that hold it; pending sums as sheets behind each other."""
    shape = placed.typed.shape
    if 0 in shape:
        return Tile((f"no elements: the shape is [{', '.join(map(str, shape))}]",))
    limit = fitting_limit([*(min(n, max(len(p), limit)) for n, p in zip(shape, placed.pieces, strict=True))], limit)
    called = dim_names(len(shape), names)
    dims = [
        _dim(f"{name} @ {', '.join(map(repr, axes))}" if axes else name, length, axes, pieces, limit)
        for name, length, axes, pieces in zip(called, shape, placed.entries, placed.pieces, strict=True)
    ]
    apart = [Dim(f"{axis!r}, V", indices(axis.size(), limit)) for axis in placed.apart]

    def tile(place: Place) -> Block:
        at = _coordinates(placed, place)
        text = placed.holders(at) if placed.axes else ",".join(part.tick for part in place)
        return Tile((text,), _tone(placed, at), index=_index(place[len(apart) :]))

    block = matrix_of_matrices([*apart, *dims], tile)
    return Sheets(block, _sheets(placed)) if placed.partial else block


def _dim(name: str, length: int, axes: Sequence[NamedAxis], pieces: Sequence[ShardRange], limit: int) -> Dim:
    held = [one for one in pieces if one.stop > one.start]
    if length <= limit:
        parts = indices(length, limit)
    elif not axes:
        parts = (DimPart(0, length),)
    elif len(held) <= limit:
        parts = tuple(DimPart(one.start, one.stop) for one in held)
    else:
        shown = held[: limit - 2]
        parts = (
            *(DimPart(one.start, one.stop) for one in shown),
            DimPart(shown[-1].stop, held[-1].start, is_left_out=True),
            DimPart(held[-1].start, held[-1].stop),
        )
    spans = tuple(_spans(repr(axis), level, parts, held) for level, axis in enumerate(axes))
    return Dim(name, parts, spans)


def _spans(axis: str, level: int, parts: Sequence[DimPart], held: Sequence[ShardRange]) -> tuple[Span, ...]:
    """One span for the parts beside each other that belong to one coordinate of an axis."""
    found: list[Span] = []
    before: Hashable = None
    for at, part in enumerate(parts):
        own = None if part.is_left_out else next(one for one in held if one.start <= part.start < one.stop)
        here = None if own is None else own.at[: level + 1]
        if own is not None and here == before:
            found[-1] = Span(found[-1].first, at, found[-1].text)
        elif own is not None:
            found.append(Span(at, at, f"{axis}={own.at[level]}"))
        before = here
    return tuple(found)


def _coordinates(placed: SpreadTensor, place: Place) -> dict[NamedAxis, int]:
    at = {axis: part.start for axis, part in zip(placed.apart, place, strict=False)}
    for axes, pieces, part in zip(placed.entries, placed.pieces, place[len(placed.apart) :], strict=True):
        own = next(one for one in pieces if one.start <= part.start < one.stop)
        at |= dict(zip(axes, own.at, strict=True))
    return at


def _index(place: Place) -> tuple[int, ...] | None:
    """The element that a place is, if it is one."""
    return tuple(part.start for part in place) if all(part.stop == part.start + 1 for part in place) else None


def _tone(placed: SpreadTensor, at: Coordinates) -> int | None:
    """A number for every set of ranks that hold the same elements."""
    told = [*placed.apart, *placed.sharded]
    if not told:
        return None
    number = 0
    for axis in told:
        number = number * axis.size() + at.get(axis, 0)
    return number


def _sheets(placed: SpreadTensor) -> tuple[str, ...]:
    titles = [
        ", ".join(f"{axis!r}={at[axis]}" for axis in placed.partial) for at in SpreadTensor._product(placed.partial)
    ]
    count = math.prod(axis.size() for axis in placed.partial)
    if count > MOST_SHEETS:
        titles = [*titles[: MOST_SHEETS - 2], "…", titles[-1]]
    return (titles[0], *(f"+ {title}" for title in titles[1:]))


def ranks_of(placed: SpreadTensor, *, limit: int = LIMIT) -> Block:
    """The mesh, every rank with the slices that it holds."""
    limit = fitting_limit([axis.size() for axis in placed.axes], limit)
    dims = [Dim(repr(axis), indices(axis.size(), limit)) for axis in placed.axes]

    def tile(place: Place) -> Block:
        at = {axis: part.start for axis, part in zip(placed.axes, place, strict=True)}
        return Tile((f"rank {placed.rank(at)}", _slices(placed, at)), _tone(placed, at))

    return matrix_of_matrices(dims, tile)


def _slices(placed: SpreadTensor, at: Coordinates) -> str:
    owned = placed.owned(at)
    if any(stop == start for start, stop in owned) and 0 not in placed.typed.shape:
        return "nothing"
    whole = [
        ":" if (start, stop) == (0, length) else f"{start}:{stop}"
        for (start, stop), length in zip(owned, placed.typed.shape, strict=True)
    ]
    return f"[{', '.join(whole)}]"


def describe(placed: SpreadTensor) -> str:
    """The picture in words."""
    parts = [f"A tensor of shape {list(placed.typed.shape)} on {math.prod(axis.size() for axis in placed.axes)} ranks."]
    for dim, axes in enumerate(placed.entries):
        if axes:
            lengths = [one.stop - one.start for one in placed.pieces[dim]]
            shown = sorted(set(lengths), reverse=True)
            parts.append(
                f"Dim {dim} is sharded over {', then '.join(map(repr, axes))}, in pieces of {_alternatives(shown)}."
            )
    for axis in placed.axes:
        if axis not in placed.sharded and axis in placed.type:
            parts.append(f"Over {axis!r} it is {format_placement(placed.type, axis)}.")
    first = placed.owned({})
    parts.append(f"Rank {placed.rank({})} holds {_slices(placed, {})}." if first else "Every rank holds one number.")
    return " ".join(parts)


def _alternatives(numbers: Sequence[int]) -> str:
    told = list(map(str, numbers))
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} or {told[-1]}"


_SAYS = {
    "R": "R over {axis}: all ranks hold the same and use it apart (0 = 1)",
    "I": "I over {axis}: all ranks hold the same and do the same with it (0 = 1)",
    "V": "V over {axis}: every rank has a tensor of its own, and nothing is said of how they combine",
    "?": "? over {axis}: nothing is known",
}


def notes_of(placed: SpreadTensor) -> tuple[str, ...]:
    """What the signs in the picture mean."""
    notes = [] if placed.axes or not placed.typed.shape else ["no mesh: tiles show the index"]
    for axis in placed.axes:
        if axis in placed.sharded:
            continue
        place = placed.type.get(axis)
        name = format_placement(placed.type, axis) if place is not None else ""
        if axis in placed.partial:
            kind = str(place.reduction)
            word = {"sum": "sum", "max": "maximum", "min": "minimum"}.get(kind, kind)
            notes.append(f"{name} over {axis!r}: the value is the {word} of the sheets, still to be taken (0 + 1)")
        elif place is None:
            notes.append(f"the type says nothing about {axis!r}; drawn as if all its ranks held the same (0 = 1)")
        else:
            factor = "" if name == repr(place) else f", the value times a power of its size ({name})"
            notes.append(_SAYS.get(repr(place), "{axis}").format(axis=repr(axis)) + factor)
    for dim, (axes, pieces) in enumerate(zip(placed.entries, placed.pieces, strict=True)):
        lengths = {one.stop - one.start for one in pieces}
        if axes and len(lengths) > 1:
            empty = sum(one.stop == one.start for one in pieces)
            none = f"; {empty} of the {len(pieces)} pieces are empty" if empty else ""
            notes.append(f"dim {dim} does not divide: pieces of {_alternatives(sorted(lengths, reverse=True))}{none}")
    return tuple(notes)
