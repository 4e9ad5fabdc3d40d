"""A tensor drawn with what it holds: a cell for every element, in a matrix of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .model import Block, Tile
from .nesting import Dim, Place, indices, matrix_of_matrices

LIMIT = 8
"""So many indices of a dim are drawn, and fewer where there are many dims."""
MOST_TILES = 512

Index = tuple[int, ...]


def dim_names(count: int, names: Sequence[str | None] | None) -> list[str]:
    """``dim 0`` or ``dim 0 (batch)``."""
    given = list(names or ())
    return [f"dim {at} ({given[at]})" if at < len(given) and given[at] else f"dim {at}" for at in range(count)]


def fitting_limit(sizes: Sequence[int], limit: int = LIMIT) -> int:
    """The largest limit, from ``limit`` down to 3, with which no more than ``MOST_TILES`` are drawn."""
    for smaller in range(limit, 3, -1):
        count = 1
        for size in sizes:
            count *= max(min(size, smaller), 1)
        if count <= MOST_TILES:
            return smaller
    return 3


def element_grid(
    shape: Sequence[int],
    text_of: Callable[[Index], str],
    *,
    names: Sequence[str | None] | None = None,
    limit: int = LIMIT,
) -> Block:
    """A cell for every element that is drawn, with ``text_of(index)`` in it."""
    limit = fitting_limit(shape, limit)
    called = dim_names(len(shape), names)
    dims = [Dim(name, indices(size, limit)) for name, size in zip(called, shape, strict=True)]
    if 0 in shape:
        return Tile((f"no elements: the shape is [{', '.join(map(str, shape))}]",))

    def tile(place: Place) -> Block:
        index = tuple(part.start for part in place)
        return Tile((text_of(index),), index=index)

    return matrix_of_matrices(dims, tile)
