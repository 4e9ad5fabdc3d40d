"""Making a picture narrower: what stands beside each other goes on below, as words do at the end of a line.

A grid of grids that is too wide is folded, its outermost level first: all its grids stand below each other.
"""

from __future__ import annotations

from dataclasses import replace

from .layout import Metrics, size_of
from .model import Arrow, Block, Frame, Heading, Look, Matrix, Picture, Sequence, Sheets, Tile
from .nesting import ACROSS, DOWN


def fitted(picture: Picture, width: float, m: Metrics, *, folds: bool = True) -> Picture:
    """The same picture, with sequences broken where they are wider than ``width``, and grids folded if ``folds``."""
    return replace(picture, block=_narrower(picture.block, width, m, folds))


def _narrower(block: Block, width: float, m: Metrics, folds: bool) -> Block:
    if size_of(block, m).width <= width:
        return block
    if isinstance(block, Sequence):
        return _broken(block, width, m, folds)
    if isinstance(block, Frame):
        return replace(block, block=_narrower(block.block, width - 2 * m.frame_x, m, folds))
    if isinstance(block, Sheets):
        behind = (len(block.titles) - 1) * m.sheet_x
        return replace(block, block=_narrower(block.block, width - behind - 2 * m.frame_x, m, folds))
    if isinstance(block, Matrix) and folds and _is_nested(block):
        folded = _folded(block, width, m)
        # Its names stand in front of each other then, which takes more room where they are long.
        return folded if size_of(folded, m).width < size_of(block, m).width else block
    return block


def _is_nested(block: Matrix) -> bool:
    return any(isinstance(one, Matrix) for row in block.rows for one in row)


def _folded(block: Matrix, width: float, m: Metrics) -> Block:
    """Its rows below each other as before, and in each the grids of all columns below each other."""
    is_top = block.across.is_shown
    inner = replace(block.across, title=block.across.title.replace(ACROSS, DOWN), is_shown=True)
    room = width - _room(block.down, len(block.rows), m) - _room(inner, len(block.rows[0]), m)
    groups: list[Block] = []
    for at, row in enumerate(block.rows):
        if all(isinstance(one, Tile) for one in row):
            groups.append(_ELLIPSIS)
            continue
        kept = [_ELLIPSIS if isinstance(one, Tile) else one for one in row]
        shown = [_headed(one, top=is_top and at == beside == 0, left=True) for beside, one in enumerate(kept)]
        heading = replace(inner, is_named=is_top and at == 0)
        groups.append(Matrix(tuple((_narrower(one, room, m, True),) for one in shown), down=heading, gap=block.gap))
    if len(groups) == 1 and not block.down.ticks:
        return groups[0]
    return Matrix(tuple((one,) for one in groups), down=block.down, gap=block.gap)


def _room(heading: Heading, rows: int, m: Metrics) -> float:
    """What a heading takes left of so many rows."""
    return size_of(Matrix(((_ELLIPSIS,),) * rows, down=heading), m).width - size_of(_ELLIPSIS, m).width


_ELLIPSIS = Tile(("⋮",), look=Look.BARE)


def _headed(block: Block, *, top: bool, left: bool) -> Block:
    """A grid of grids with the headings that belong to its place: names above in the first row, left in the first
    column."""
    if not isinstance(block, Matrix):
        return block
    rows = tuple(
        tuple(_headed(one, top=top and at == 0, left=left and beside == 0) for beside, one in enumerate(row))
        for at, row in enumerate(block.rows)
    )
    across, down = replace(block.across, is_shown=top), block.down
    if down != Heading():
        down = replace(down, is_shown=left, is_named=top)
    return replace(block, rows=rows, across=across, down=down)


def _broken(block: Sequence, width: float, m: Metrics, folds: bool) -> Block:
    parts = [_narrower(one, width, m, folds) for one in block.blocks]
    if not block.across:
        return replace(block, blocks=tuple(parts))
    if any(isinstance(part, Arrow) for part in parts):
        # Before and after stand on one line or above each other, never half and half.
        turned = tuple(replace(part, across=False) if isinstance(part, Arrow) else part for part in parts)
        return Sequence(turned, across=False)
    rows: list[list[Block]] = [[]]
    used = 0.0
    for part in parts:
        wide = size_of(part, m).width
        if rows[-1] and used + block.gap * m.gap_x + wide > width:
            rows.append([])
            used = 0.0
        used += wide + (block.gap * m.gap_x if rows[-1] else 0)
        rows[-1].append(part)
    return Sequence(tuple(replace(block, blocks=tuple(row)) for row in rows), across=False)
