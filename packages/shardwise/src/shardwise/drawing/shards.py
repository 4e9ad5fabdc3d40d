"""A sharded tensor drawn: every block with the ranks that hold it, and every rank with the slices that it holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

from shardwise.mesh.names import NamedAxis
from shardwise.types.notation import TypedShape

from .model import Block, Look, Picture, Sheets, Span, Tile, Words
from .model import Sequence as Blocks
from .nesting import Dim, DimPart, Place, indices, matrix_of_matrices
from .shard_notes import described, notes_of
from .spread_tensor import Coordinates, Pieces, SpreadTensor
from .tensors import LIMIT, dim_names, fitting_limit

MOST_SHEETS = 4


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
    return Picture(title, described(placed), block, notes_of(placed))


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


def _dim(name: str, length: int, axes: Sequence[NamedAxis], pieces: Pieces, limit: int) -> Dim:
    held = list(itertools.islice(pieces.held(), limit + 1))
    if length <= limit:
        parts = indices(length, limit)
    elif not axes:
        parts = (DimPart(0, length),)
    elif len(held) <= limit:
        parts = tuple(DimPart(one.start, one.stop) for one in held)
    else:
        shown, last = held[: limit - 2], pieces.holding(length - 1)
        parts = (
            *(DimPart(one.start, one.stop) for one in shown),
            DimPart(shown[-1].stop, last.start, is_left_out=True),
            DimPart(last.start, last.stop),
        )
    spans = tuple(_spans(repr(axis), level, parts, pieces) for level, axis in enumerate(axes))
    return Dim(name, parts, spans)


def _spans(axis: str, level: int, parts: Sequence[DimPart], pieces: Pieces) -> tuple[Span, ...]:
    """One span for the parts beside each other that belong to one coordinate of an axis."""
    found: list[Span] = []
    before: Hashable = None
    for at, part in enumerate(parts):
        own = None if part.is_left_out else pieces.holding(part.start)
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
        at |= dict(zip(axes, pieces.holding(part.start).at, strict=True))
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
        ", ".join(f"{axis!r}={at[axis]}" for axis in placed.partial) for at in SpreadTensor.places(placed.partial)
    ]
    count = math.prod(axis.size() for axis in placed.partial)
    if count > MOST_SHEETS:
        titles = [*titles[: MOST_SHEETS - 2], "…", titles[-1]]
    sign = "+ " if all(placed.reduction(axis) == "sum" for axis in placed.partial) else ""
    return (titles[0], *(f"{sign}{title}" for title in titles[1:]))


def ranks_of(placed: SpreadTensor, *, limit: int = LIMIT) -> Block:
    """The mesh, every rank with the slices that it holds."""
    sizes = [axis.size() for axis in placed.axes]
    limit = fitting_limit(sizes, limit)
    dims = [Dim(repr(axis), indices(axis.size(), limit)) for axis in placed.axes]

    def tile(place: Place) -> Block:
        at = {axis: part.start for axis, part in zip(placed.axes, place, strict=True)}
        return Tile((f"rank {placed.rank(at)}", placed.slices(at)), _tone(placed, at))

    return matrix_of_matrices(dims, tile)
