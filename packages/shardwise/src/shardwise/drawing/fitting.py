"""Making a picture narrower: what stands beside each other goes on below, as words do at the end of a line."""

from __future__ import annotations

from dataclasses import replace

from .layout import Metrics, size_of
from .model import Arrow, Block, Frame, Picture, Sequence, Sheets


def fitted(picture: Picture, width: float, m: Metrics) -> Picture:
    """The same picture, with sequences broken where they are wider than ``width``."""
    return replace(picture, block=_narrower(picture.block, width, m))


def _narrower(block: Block, width: float, m: Metrics) -> Block:
    if size_of(block, m).width <= width:
        return block
    if isinstance(block, Sequence):
        return _broken(block, width, m)
    if isinstance(block, Frame):
        return replace(block, block=_narrower(block.block, width - 2 * m.frame_x, m))
    if isinstance(block, Sheets):
        behind = (len(block.titles) - 1) * m.sheet_x
        return replace(block, block=_narrower(block.block, width - behind - 2 * m.frame_x, m))
    return block


def _broken(block: Sequence, width: float, m: Metrics) -> Block:
    parts = [_narrower(one, width, m) for one in block.blocks]
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
