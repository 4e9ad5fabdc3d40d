"""A layout drawn as the map that it is: from a place in its digits to the offset of a rank."""

from __future__ import annotations

from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout

from .model import Block, Look, Matrix, Picture, Sequence, Tile, Words
from .nesting import Dim, Place, indices, matrix_of_matrices
from .tensors import LIMIT, fitting_limit

MOST_OFFSETS = 32
MOST_LISTED = 4096
"""Places that are gone through to say which ranks are reached."""


def layout_picture(layout: Layout | IndexMap, *, name: str = "", limit: int = LIMIT) -> Picture:
    """Every digit ``size:stride`` as a dim with the offsets in its tiles, and below the ranks that are reached."""
    known = f"{name} = {layout}" if name else str(layout)
    counted = IndexMap.of_modes(layout.atoms) if isinstance(layout, Layout) else layout
    limit = fitting_limit(counted.sizes, limit)
    least = len(str(counted.reach - 1))
    dims = [Dim(f"{size}:{stride}", indices(size, limit)) for size, stride in counted.modes]

    def tile(place: Place) -> Block:
        at = tuple(part.start for part in place)
        return Tile((str(counted.at(at)),), least=least, index=at)

    blocks: list[Block] = [matrix_of_matrices(dims, tile)]
    if counted.reach <= MOST_OFFSETS and counted.size <= MOST_LISTED:
        blocks.append(_titled("the ranks that it reaches; a dot is one that it does not", _reached(counted)))
    adds = " + ".join(f"{stride} * i{at}" for at, stride in enumerate(counted.strides)) or "0"
    notes = [f"offset = {adds}", "the order of places is row by row: the last digit counts fastest"]
    shortest = counted.coalesce()
    if shortest != counted:
        notes.append(f"the same function in the fewest digits: {shortest}")
    if 0 in shortest.strides:
        notes.append("a digit with stride 0 goes nowhere: its places have the same rank")
    return Picture(
        f"layout {known}",
        f"The layout {known} as a map from {counted.size} places to offsets of ranks, the largest {counted.reach - 1}.",
        Sequence(tuple(blocks), across=False),
        tuple(notes),
    )


def _titled(title: str, block: Block) -> Block:
    return Sequence((Words((title,), Look.TITLE), block), across=False)


def _reached(counted: IndexMap) -> Block:
    reached = {counted(at) for at in range(counted.size)}
    tiles = tuple(
        Tile((str(rank) if rank in reached else "·",), 0 if rank in reached else None, least=2)
        for rank in range(counted.reach)
    )
    return Sequence(tuple(Matrix((tiles[at : at + 16],)) for at in range(0, len(tiles), 16)), across=False, gap=0)
