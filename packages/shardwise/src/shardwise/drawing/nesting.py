"""Any number of dims on paper: a matrix of matrices.

The last dim runs across, the one before it down, then across again a level further out, and so on, so that the
outermost dim is the outermost on paper.

Of a long dim only some parts are drawn: indices from both ends with an ellipsis between them, or ranges. Where that is
still too much, because there are many dims, of the outermost ones only the first part is drawn, and a line says so.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardwise.diagnostics.printing.printable import cells

from .model import Block, Heading, Look, Matrix, Span, Tile, Words, label
from .model import Sequence as Blocks

ACROSS, DOWN = "→", "↓"
MOST_TILES = 512
LINE = 76


@dataclass(frozen=True, slots=True)
class DimPart:
    """Indices ``start`` to ``stop`` of a dim, drawn as one row or column; or left out, and drawn as an ellipsis."""

    start: int
    stop: int
    is_left_out: bool = False

    @property
    def tick(self) -> str:
        if self.is_left_out:
            return "…"
        return str(self.start) if self.stop == self.start + 1 else f"{self.start}:{self.stop}"


@dataclass(frozen=True, slots=True)
class Dim:
    """One dim of a drawing: what it is called, its parts, and who has them (spans over the parts, outermost first)."""

    name: str
    parts: tuple[DimPart, ...]
    spans: tuple[tuple[Span, ...], ...] = ()
    has_ticks: bool = True


Place = tuple[DimPart, ...]
"""One part of every dim."""


def indices(size: int, limit: int) -> tuple[DimPart, ...]:
    """Every index below ``size``, or ``limit`` parts of which one is an ellipsis."""
    if size <= limit:
        return tuple(DimPart(at, at + 1) for at in range(size))
    first = limit - 2
    return (*(DimPart(at, at + 1) for at in range(first)), DimPart(first, size - 1, True), DimPart(size - 1, size))


def matrix_of_matrices(dims: Sequence[Dim], cell: Callable[[Place], Block]) -> Block:
    """Nested grids with a block for every place; the first row and column of each level carry the headings."""
    outer, inner = _readable(dims)
    if not outer:
        return _grids(inner, cell)
    place = tuple(dim.parts[0] for dim in outer)
    told = f"along {', '.join(label(dim.name) for dim in outer)} only the first place is drawn:"
    block = _grids(inner, lambda within: cell((*place, *within)))
    return Blocks((Words(tuple(textwrap.wrap(told, LINE))), block), across=False)


def _grids(dims: Sequence[Dim], cell: Callable[[Place], Block]) -> Block:
    if len(dims) < 3:
        return _level(tuple(dims), (), cell, top=True, left=True)
    # Grids above each other have columns of one width, so the tiles of all of them agree.
    blocks = {place: cell(place) for place in itertools.product(*(_shown(dim) for dim in dims))}
    least = max((_width(block) for block in blocks.values()), default=0)
    wide = {
        place: replace(block, least=max(block.least, least)) if isinstance(block, Tile) else block
        for place, block in blocks.items()
    }
    return _level(tuple(dims), (), wide.__getitem__, top=True, left=True)


def _readable(dims: Sequence[Dim]) -> tuple[Sequence[Dim], Sequence[Dim]]:
    """The outer dims of which one part is drawn, and the inner ones, for which ``MOST_TILES`` are enough then."""
    for at in range(len(dims)):
        if math.prod(len(_shown(dim)) for dim in dims[at:]) <= MOST_TILES:
            return dims[:at], dims[at:]
    return dims, ()


def _shown(dim: Dim) -> list[DimPart]:
    return [part for part in dim.parts if not part.is_left_out]


def _width(block: Block) -> int:
    return max(map(cells, block.lines), default=0) if isinstance(block, Tile) else 0


def _level(dims: tuple[Dim, ...], place: Place, cell: Callable[[Place], Block], *, top: bool, left: bool) -> Block:
    if not dims:
        return cell(place)
    # An odd number of dims has one dim on the outermost level, and it runs across; so does the dim of a vector.
    own = dims[: 2 - len(dims) % 2]
    inner = dims[len(own) :]
    down, across = own if len(own) == 2 else (None, own[0])
    rows: list[tuple[Block, ...]] = []
    for at, row in enumerate(down.parts if down else [None]):
        blocks: list[Block] = []
        for beside, column in enumerate(across.parts):
            here = (*place, *((row,) if row else ()), column)
            if any(part.is_left_out for part in here[len(place) :]):
                sign = (
                    "⋱" if row and row.is_left_out and column.is_left_out else "⋮" if row and row.is_left_out else "…"
                )
                blocks.append(Tile((sign,), look=Look.BARE))
            else:
                blocks.append(_level(inner, here, cell, top=top and at == 0, left=left and beside == 0))
        rows.append(tuple(blocks))
    gap = 1 if inner else 0
    return Matrix(
        tuple(rows),
        _heading(across, ACROSS, is_shown=top),
        # Of grids below each other only the first says the name, on a line that the others do not have.
        _heading(down, DOWN, is_shown=left, is_named=top) if down else Heading(),
        gap,
    )


def _heading(dim: Dim, sign: str, *, is_shown: bool, is_named: bool = True) -> Heading:
    ticks = tuple(part.tick for part in dim.parts) if dim.has_ticks else ()
    return Heading(f"{dim.name} {sign}", ticks, dim.spans, is_shown, is_named)
