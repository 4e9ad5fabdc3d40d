"""A tensor drawn with what it holds: a cell for every element, in a matrix of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown

from .model import Block, Tile
from .nesting import MOST_TILES, Dim, Place, indices, matrix_of_matrices

LIMIT = 8
"""So many indices of a dim are drawn, and fewer where there are many dims."""
MOST_DIMS = 64
"""PyTorch has no more; pictures are not nested deeper."""

Index = tuple[int, ...]


def dim_names(count: int, names: Sequence[str | None] | None) -> list[str]:
    """``dim 0`` or ``dim 0 (batch)``. Errors: ValueError (SW905) for more names than dims."""
    given = [] if names is None else names
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SpmdArgumentError(f"names is a list of names, one a dim, got {shown(names)}", code="SW905")
    if len(given) > count:
        named = ", ".join(map(shown, given))
        raise SpmdValueError(f"{len(given)} names ({named}) for a tensor of {count} dims: one for each", code="SW905")
    return [f"dim {at} ({given[at]})" if at < len(given) and given[at] else f"dim {at}" for at in range(count)]


def fitting_limit(sizes: Sequence[int], limit: int = LIMIT) -> int:
    """The largest limit, from ``limit`` down to 3, with which no more than ``MOST_TILES`` are drawn, or 3.

    Errors: ValueError (SW905) for more than ``MOST_DIMS``.
    """
    if len(sizes) > MOST_DIMS:
        raise SpmdValueError(f"a picture has at most {MOST_DIMS} dims or axes, and here are {len(sizes)}", code="SW905")
    for smaller in range(min(limit, MOST_TILES), 3, -1):  # with more the tiles are no more
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
