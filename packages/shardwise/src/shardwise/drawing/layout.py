"""Where every block of a picture goes: sizes from the inside out, then places from the outside in.

One algorithm for both renderers. In text the unit is a terminal cell, a box has a border of one cell which neighbours
share, and all places are whole; in an SVG the unit is a pixel and borders have no width.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from shardwise.diagnostics.printing.printable import cells as width_of

from .model import Arrow, Block, Frame, Heading, Look, Matrix, Sequence, Sheets, Span, Tile


@dataclass(frozen=True, slots=True)
class Metrics:
    """The sizes of a medium.

    ``character``, ``line``  of one character; ``border`` what the edge of a box takes on a side; neighbours share it.
    ``pad_x``, ``pad_y``     between the edge of a cell and its text.
    ``gap_x``, ``gap_y``     one unit of space between blocks.
    ``frame_top``, ``frame_x``, ``frame_bottom``  what a Frame adds around its block, its title at the top.
    ``sheet_x``, ``sheet_y`` by how much a sheet behind looks out.
    ``whole``                places are whole numbers.
    """

    character: float
    line: float
    border: float
    pad_x: float
    pad_y: float
    gap_x: float
    gap_y: float
    frame_top: float
    frame_x: float
    frame_bottom: float
    sheet_x: float
    sheet_y: float
    shaft: float
    whole: bool

    def half(self, length: float) -> float:
        return length // 2 if self.whole else length / 2

    def words(self, text: str) -> float:
        return width_of(text) * self.character

    def box(self, characters: float, lines: int) -> Size:
        return Size(
            characters + 2 * (self.pad_x + self.border), max(lines, 1) * self.line + 2 * (self.pad_y + self.border)
        )


TEXT = Metrics(1, 1, 1, 1, 0, 2, 1, 1, 2, 1, 2, 1, 1, True)
PIXELS = Metrics(7.9, 17, 0, 8, 5, 16, 16, 26, 12, 12, 14, 24, 14, False)


@dataclass(frozen=True, slots=True)
class Size:
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Box:
    """A cell or a frame in its place. ``title`` stands on or below the upper edge; ``lines`` in the middle."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...] = ()
    title: str = ""
    tone: int | None = None
    look: Look = Look.PLAIN
    index: tuple[int, ...] | None = None
    key: Hashable = None
    is_frame: bool = False
    covers: bool = False
    """It hides what was drawn below it."""


@dataclass(frozen=True, slots=True)
class Label:
    """Words in their place: ``x`` is the left end, or the middle."""

    x: float
    y: float
    text: str
    look: Look = Look.PLAIN
    tone: int | None = None
    is_centred: bool = False


@dataclass(frozen=True, slots=True)
class Shaft:
    """A straight line, with a head at its end or not; a thick one is an edge between regions."""

    x: float
    y: float
    to_x: float
    to_y: float
    has_head: bool = False
    is_thick: bool = False


Mark = Box | Label | Shaft


def size_of(block: Block, m: Metrics) -> Size:
    """How much room the block takes."""
    return _size(block, m)


def marks_of(block: Block, m: Metrics, x: float = 0, y: float = 0) -> Iterator[Mark]:
    """Everything to draw, what lies behind first."""
    return _place(block, m, x, y, _size(block, m))


@lru_cache(maxsize=20_000)
def _size(block: Block, m: Metrics) -> Size:
    if isinstance(block, Tile):
        wide = max([block.least * m.character, *(m.words(line) for line in block.lines)])
        return m.box(wide, len(block.lines))
    if isinstance(block, Matrix):
        return _table(block, m).size
    if isinstance(block, Frame):
        inner = _size(block.block, m)
        least = m.words(block.title) + 2 * m.frame_x
        return Size(max(inner.width + 2 * m.frame_x, least), inner.height + m.frame_top + m.frame_bottom)
    if isinstance(block, Sheets):
        front = _size(_front(block), m)
        behind = len(block.titles) - 1
        return Size(front.width + behind * m.sheet_x, front.height + behind * m.sheet_y)
    if isinstance(block, Sequence):
        sizes = [_size(one, m) for one in block.blocks]
        between = block.gap * (m.gap_x if block.across else m.gap_y) * max(len(sizes) - 1, 0)
        widths, heights = [one.width for one in sizes], [one.height for one in sizes]
        if block.across:
            return Size(sum(widths) + between, max(heights, default=0))
        return Size(max(widths, default=0), sum(heights) + between)
    if isinstance(block, Arrow):
        wide = max((m.words(line) for line in block.lines), default=0)
        if block.across:
            return Size(wide + 4 * m.character, len(block.lines) * m.line + m.shaft)
        return Size(wide + 3 * m.character, max(len(block.lines), 1) * m.line + m.shaft + block.tall * m.line)
    return Size(max((m.words(line) for line in block.lines), default=0), len(block.lines) * m.line)


def _front(block: Sheets) -> Frame:
    return Frame(block.block, max(block.titles, key=width_of, default=""))


def _place(block: Block, m: Metrics, x: float, y: float, room: Size) -> Iterator[Mark]:
    """The marks of a block in its room: cells fill it, the others keep to its upper left."""
    if isinstance(block, Tile):
        yield Box(x, y, room.width, room.height, block.lines, "", block.tone, block.look, block.index, block.key)
    elif isinstance(block, Matrix):
        yield from _table(block, m).marks(x, y)
    elif isinstance(block, Frame):
        size = _size(block, m)
        yield _frame(block.title, x, y, size, block.look, block.tone, block.key)
        inner = _size(block.block, m)
        yield from _place(block.block, m, x + m.frame_x, y + m.frame_top, inner)
    elif isinstance(block, Sheets):
        front, last = _size(_front(block), m), len(block.titles) - 1
        for at in range(last, 0, -1):
            yield _frame(block.titles[at], x + at * m.sheet_x, y + (last - at) * m.sheet_y, front)
        top = y + last * m.sheet_y
        yield _frame(block.titles[0], x, top, front)
        yield from _place(block.block, m, x + m.frame_x, top + m.frame_top, _size(block.block, m))
    elif isinstance(block, Sequence):
        yield from _one_after_another(block, m, x, y)
    elif isinstance(block, Arrow):
        yield from _arrow(block, m, x, y, _size(block, m))
    else:
        for at, line in enumerate(block.lines):
            yield Label(x, y + at * m.line, line, block.look, block.tone)


def _frame(
    title: str,
    x: float,
    y: float,
    size: Size,
    look: Look = Look.PLAIN,
    tone: int | None = None,
    key: Hashable = None,
) -> Box:
    return Box(x, y, size.width, size.height, (), title, tone, look, key=key, is_frame=True, covers=True)


def _one_after_another(block: Sequence, m: Metrics, x: float, y: float) -> Iterator[Mark]:
    whole = _size(block, m)
    for one in block.blocks:
        size = _size(one, m)
        if block.across:
            yield from _place(one, m, x, y + (m.half(whole.height - size.height) if block.middle else 0), size)
            x += size.width + block.gap * m.gap_x
        else:
            yield from _place(one, m, x + (m.half(whole.width - size.width) if block.middle else 0), y, size)
            y += size.height + block.gap * m.gap_y


def _arrow(block: Arrow, m: Metrics, x: float, y: float, size: Size) -> Iterator[Mark]:
    if block.across:
        for at, line in enumerate(block.lines):
            yield Label(x + m.half(size.width - m.words(line)), y + at * m.line, line)
        at_y = y + len(block.lines) * m.line + m.half(m.shaft)
        yield Shaft(x, at_y, x + size.width - m.border, at_y, has_head=True)
    else:
        at_x = x + m.character
        yield Shaft(at_x, y, at_x, y + size.height - m.border, has_head=True)
        top = y + m.half(size.height - len(block.lines) * m.line)
        for at, line in enumerate(block.lines):
            yield Label(x + 3 * m.character, top + at * m.line, line)


@dataclass(frozen=True, slots=True)
class _Lead:
    """Where the first cell of a block begins, seen from the block's corner."""

    x: float = 0
    y: float = 0


def _lead(block: Block | None, m: Metrics) -> _Lead:
    if not isinstance(block, Matrix):
        return _Lead()
    table = _table(block, m)
    return _Lead(table.left + max(table.leads_x[:1], default=0), table.top + max(table.leads_y[:1], default=0))


@lru_cache(maxsize=20_000)
def _table(grid: Matrix, m: Metrics) -> _Table:
    return _Table(grid, m)


class _Table:
    """A grid with its columns and rows measured."""

    def __init__(self, grid: Matrix, m: Metrics) -> None:
        self.grid, self.m = grid, m
        self.across = grid.across if grid.across.is_shown else Heading()
        self.down = grid.down if grid.down.is_shown else Heading()
        self.between_x = grid.gap * m.gap_x if grid.gap else -m.border
        self.between_y = grid.gap * m.gap_y if grid.gap else -m.border
        columns = list(itertools.zip_longest(*grid.rows))
        # Headings stand left of the cells and above them; the first cells are what has to agree.
        self.leads_x = [max((_lead(block, m).x for block in column), default=0) for column in columns]
        self.leads_y = [max((_lead(block, m).y for block in row), default=0) for row in grid.rows]
        self.widths = [
            lead + max(_size(block, m).width - _lead(block, m).x for block in column if block is not None)
            for lead, column in zip(self.leads_x, columns, strict=True)
        ]
        self.heights = [
            lead + max((_size(block, m).height - _lead(block, m).y for block in row), default=0)
            for lead, row in zip(self.leads_y, grid.rows, strict=True)
        ]
        edges = 0 if grid.gap else 2 * m.border
        for at, tick in enumerate(grid.across.ticks[: len(columns)]):
            self.widths[at] = max(self.widths[at], m.words(tick) + edges + 2 * (m.pad_x if not m.whole else 0))
        self.heights = [max(height, m.line + edges) for height in self.heights]
        for spans in grid.across.spans:
            for span in spans:
                _stretch(self.widths, span, m.box(m.words(span.text), 1).width, self.between_x)
        for spans in grid.down.spans:
            for span in spans:
                _stretch(self.heights, span, m.box(0, 1).height, self.between_y)
        self.span_widths = [
            max((m.box(m.words(span.text), 1).width for span in spans), default=0) for spans in self.down.spans
        ]
        self._measure_headings()

    def _measure_headings(self) -> None:
        m = self.m
        tick = max((m.words(text) for text in self.down.ticks), default=0)
        self.tick_width = tick + (m.character if tick else 0)
        spans = sum(self.span_widths) - m.border * max(len(self.span_widths) - 1, 0)
        self.spans_width = spans + (m.character if spans else 0)
        self.left = self.tick_width + self.spans_width
        if self.down.title:
            self.left = max(self.left, m.words(self.down.title) + m.character)
        self.span_height = m.box(0, 1).height - m.border
        ticks = m.line if self.across.ticks or (self.down.title and self.down.is_named) else 0
        spare = 0 if m.whole or not ticks else 4
        self.ticks_y = (m.line if self.across.title else 0) + spare + self.span_height * len(self.across.spans)
        if self.across.spans:
            self.ticks_y += m.border
        self.top = self.ticks_y + ticks + (spare if ticks else 0)
        wide = sum(self.widths) + self.between_x * max(len(self.widths) - 1, 0)
        high = sum(self.heights) + self.between_y * max(len(self.heights) - 1, 0)
        wide = max(wide, m.words(self.across.title))
        self.size = Size(self.left + wide, self.top + high)

    def marks(self, x: float, y: float) -> Iterator[Mark]:
        grid, m = self.grid, self.m
        lefts = self._starts(x + self.left, self.widths, self.between_x)
        tops = self._starts(y + self.top, self.heights, self.between_y)
        yield from self._headings(x, y, lefts, tops)
        for top, height, lead_y, row in zip(tops, self.heights, self.leads_y, grid.rows, strict=True):
            for left, width, lead_x, block in zip(lefts, self.widths, self.leads_x, row, strict=False):
                own = _lead(block, m)
                moved_x, moved_y = (lead_x - own.x, lead_y - own.y) if isinstance(block, Matrix) else (0, 0)
                if isinstance(block, Frame):
                    moved_x = m.half(width - _size(block, m).width)
                yield from _place(block, m, left + moved_x, top + moved_y, Size(width, height))
        yield from self._regions(lefts, tops)

    @staticmethod
    def _starts(at: float, lengths: list[float], between: float) -> list[float]:
        starts = []
        for length in lengths:
            starts.append(at)
            at += length + between
        return starts

    def _headings(self, x: float, y: float, lefts: list[float], tops: list[float]) -> Iterator[Mark]:
        m = self.m
        if self.across.title:
            yield Label(x + self.left, y, self.across.title, Look.HEAD)
        if self.down.title and self.down.is_named:
            yield Label(x, y + self.ticks_y, self.down.title, Look.HEAD)
        top = y + (m.line if self.across.title else 0)
        for spans in self.across.spans:
            for span in spans:
                wide = lefts[span.last] + self.widths[span.last] - lefts[span.first]
                yield Box(
                    lefts[span.first], top, wide, self.span_height + m.border, (span.text,), "", span.tone, Look.HEAD
                )
            top += self.span_height
        for left, width, lead, tick in zip(lefts, self.widths, self.leads_x, self.across.ticks, strict=False):
            yield Label(left + lead + m.half(width - lead - m.words(tick)), y + self.ticks_y, tick, Look.HEAD)
        left = x + self.left - self.tick_width - self.spans_width
        for width, spans in zip(self.span_widths, self.down.spans, strict=True):
            for span in spans:
                high = tops[span.last] + self.heights[span.last] - tops[span.first]
                yield Box(left, tops[span.first], width, high, (span.text,), "", span.tone, Look.HEAD)
            left += width - m.border
        end = x + self.left - m.character
        for at_y, height, lead, tick in zip(tops, self.heights, self.leads_y, self.down.ticks, strict=False):
            yield Label(end - m.words(tick), at_y + lead + m.half(height - lead - m.line), tick, Look.HEAD)

    def _regions(self, lefts: list[float], tops: list[float]) -> Iterator[Mark]:
        """Thick lines around what belongs together."""
        if not any(isinstance(block, Tile) and block.region is not None for row in self.grid.rows for block in row):
            return
        edge = self.m.border

        def region(row: int, column: int) -> Hashable:
            if not (0 <= row < len(tops) and 0 <= column < len(self.grid.rows[row])):
                return None
            block = self.grid.rows[row][column]
            return block.region if isinstance(block, Tile) else None

        for row, top in enumerate(tops):
            bottom = top + self.heights[row] - edge
            for column, left in enumerate(lefts):
                right, own = left + self.widths[column] - edge, region(row, column)
                if own != region(row - 1, column):
                    yield Shaft(left, top, right, top, is_thick=True)
                if own != region(row, column - 1):
                    yield Shaft(left, top, left, bottom, is_thick=True)
                if row == len(tops) - 1 and own is not None:
                    yield Shaft(left, bottom, right, bottom, is_thick=True)
                if column == len(lefts) - 1 and own is not None:
                    yield Shaft(right, top, right, bottom, is_thick=True)


def _stretch(lengths: list[float], span: Span, needed: float, between: float) -> None:
    """Make the last of the columns or rows under a span long enough for its text."""
    covered = lengths[span.first : span.last + 1]
    missing = needed - sum(covered) - between * (len(covered) - 1)
    if missing > 0:
        lengths[span.last] += missing
