"""A layout drawn as the map that it is: from a place in its atoms to the offset of a rank."""

from __future__ import annotations

from shardwise.mesh.layout import Layout

from .mesh import offset_at
from .model import Block, Look, Matrix, Picture, Sequence, Tile, Words
from .nesting import Dim, Place, indices, matrix_of_matrices
from .tensors import LIMIT, fitting_limit

MOST_OFFSETS = 33


def layout_picture(layout: Layout, *, name: str = "", limit: int = LIMIT) -> Picture:
    """Every atom ``size:stride`` as a dim with the offsets in its tiles, and below the ranks that are reached."""
    limit = fitting_limit(layout.sizes, limit)
    least = len(str(layout.span()))
    dims = [Dim(f"{size}:{stride}", indices(size, limit)) for size, stride in layout.atoms]

    def tile(place: Place) -> Block:
        at = 0
        for size, part in zip(layout.sizes, place, strict=True):
            at = at * size + part.start
        return Tile((str(offset_at(layout, at)),), least=least, index=tuple(part.start for part in place))

    blocks: list[Block] = [matrix_of_matrices(dims, tile)]
    if layout.span() < MOST_OFFSETS:
        blocks.append(_titled("the ranks that it reaches; a dot is one that it does not", _reached(layout)))
    known = f"{name} = {layout}" if name else str(layout)
    adds = " + ".join(f"{stride} * i{at}" for at, stride in enumerate(layout.strides)) or "0"
    return Picture(
        f"layout {known}",
        f"The layout {known} as a map from {layout.numel()} places to offsets of ranks, the largest {layout.span()}.",
        Sequence(tuple(blocks), across=False),
        (f"offset = {adds}", "the order of places is row by row: the last atom counts fastest"),
    )


def _titled(title: str, block: Block) -> Block:
    return Sequence((Words((title,), Look.TITLE), block), across=False)


def _reached(layout: Layout) -> Block:
    tiles = tuple(
        Tile((str(rank) if rank in layout else "·",), 0 if rank in layout else None, least=2)
        for rank in range(layout.span() + 1)
    )
    return Sequence(tuple(Matrix((tiles[at : at + 16],)) for at in range(0, len(tiles), 16)), across=False, gap=0)
