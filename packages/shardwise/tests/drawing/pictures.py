"""What holds for every picture, asked of its marks, its text and its SVG."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

from shardwise.diagnostics.printing.printable import cells
from shardwise.drawing.fitting import fitted
from shardwise.drawing.layout import PIXELS, TEXT, Box, Metrics, marks_of, size_of
from shardwise.drawing.model import Frame, Look, Matrix, Picture, Sequence, Sheets, Tile
from shardwise.drawing.svg import svg_of
from shardwise.drawing.text import text_of

SVG = "{http://www.w3.org/2000/svg}"


def tiles_of(block):
    """Every cell of a block."""
    if isinstance(block, Tile):
        yield block
    elif isinstance(block, Matrix):
        for row in block.rows:
            for one in row:
                yield from tiles_of(one)
    elif isinstance(block, (Frame, Sheets)):
        yield from tiles_of(block.block)
    elif isinstance(block, Sequence):
        for one in block.blocks:
            yield from tiles_of(one)


def boxes_of(picture: Picture, m: Metrics) -> list[Box]:
    return [mark for mark in marks_of(picture.block, m) if isinstance(mark, Box)]


def overlapping(picture: Picture, m: Metrics) -> list[tuple[Box, Box]]:
    """Pairs of cells whose insides meet."""
    found = []
    boxes = sorted((box for box in boxes_of(picture, m) if not box.is_frame), key=lambda box: box.y)
    for one, other in itertools.combinations(boxes, 2):
        across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
        down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
        if across > m.border + 1e-6 and down > m.border + 1e-6:
            found.append((one, other))
    return found


def spilling(picture: Picture, m: Metrics) -> list[Box]:
    """Boxes whose text is larger than they are, or that lie outside the picture."""
    size = size_of(picture.block, m)
    found = []
    for box in boxes_of(picture, m):
        wide = max([m.words(box.title), *(m.words(line) for line in box.lines)])
        fits = wide <= box.width - 2 * m.border + 1e-6 and len(box.lines) * m.line <= box.height - 2 * m.border + 1e-6
        inside = box.x >= 0 and box.y >= 0 and box.x + box.width <= size.width + 1e-6
        if not (fits and inside and box.y + box.height <= size.height + 1e-6):
            found.append(box)
    return found


def hold(picture: Picture, width: int = 100) -> None:
    """Assert what holds for every picture."""
    for m, narrow in ((TEXT, 40), (PIXELS, 300)):
        for one in (picture, fitted(picture, narrow, m)):
            assert overlapping(one, m) == []
            assert spilling(one, m) == []
    assert picture.title
    assert picture.description
    svg = ElementTree.fromstring(svg_of(picture))
    assert svg.tag == f"{SVG}svg"
    assert svg.find(f"{SVG}title").text == picture.title
    assert picture.description in svg.find(f"{SVG}desc").text
    drawn = [text.text or "" for text in svg.iter(f"{SVG}text")]
    for cell in tiles_of(picture.block):
        for line in cell.lines:
            assert line in drawn or cell.look is Look.BARE  # folded, an ellipsis points down
    ids = [element.get("id") for element in svg.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    text = text_of(picture, width)
    assert picture.title in text
    assert all(character == "\n" or character.isprintable() for character in text)
    ends = {cells(line) for line in text.splitlines()}
    assert max(ends) <= max(width, size_of(picture.block, TEXT).width, cells(picture.title))
