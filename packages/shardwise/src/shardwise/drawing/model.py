"""What a picture is made of: cells, grids with headings, frames, stacked sheets, arrows; without widths or colours.

A block is a Tile, a Matrix, a Frame, Sheets, a Sequence, an Arrow or Words; ``layout`` gives every block its place, and
``text`` and ``svg`` draw what has a place. Label may be anything at all: the renderers make it harmless.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from shardwise.diagnostics.printing.printable import clean

LONGEST_LABEL = 60
"""Characters of a heading: a longer one would make everything else too small to read."""


def label(text: str) -> str:
    """``text`` harmless, and without its middle if it is too long: the end often says which index it is.

    Example:
        >>> label("x" * 100 + "=0")
        'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxxxxxxxxxx=0'
    """
    shown = clean(text)
    if len(shown) <= LONGEST_LABEL:
        return shown
    kept = LONGEST_LABEL // 2
    return f"{shown[: kept - 1]}…{shown[-kept:]}"


class Look(Enum):
    """How a cell or a line of words is meant to be read."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    """Does not carry content: zeros, what is left over."""
    DASHED = "dashed"
    """Possible and rarely meant."""
    BARE = "bare"
    """Words without a box: an ellipsis, a sign between cells."""
    HEAD = "head"
    """The heading of the cells beside or below."""
    TITLE = "title"


@dataclass(frozen=True, slots=True)
class Tile:
    """A box with lines of text.

    ``tone``    which of the palette's colours with their patterns; None for none. It repeats what the text says.
    ``least``   the width in characters below which the cell does not go, so that cells of several grids agree.
    ``index``   of which element, where the cell is one: its index in the tensor.
    ``key``     what links call the cell.
    ``region``  cells beside each other in one grid have a thick line between them where their regions differ.
    """

    lines: tuple[str, ...]
    tone: int | None = None
    look: Look = Look.PLAIN
    least: int = 0
    index: tuple[int, ...] | None = None
    key: Hashable = None
    region: Hashable = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(map(clean, self.lines)))


@dataclass(frozen=True, slots=True)
class Span:
    """A heading over the rows or columns ``first`` to ``last``, both included."""

    first: int
    last: int
    text: str
    tone: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", label(self.text))


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands over the columns of a grid, or left of its rows: a title, spans (outermost first), a tick for each.

    One that is not shown makes columns as wide as those of the grid that shows it; one whose title another grid says
    keeps the title's room, so that ticks below each other stand in one column.
    """

    title: str = ""
    ticks: tuple[str, ...] = ()
    spans: tuple[tuple[Span, ...], ...] = ()
    is_shown: bool = True
    is_named: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", label(self.title))
        object.__setattr__(self, "ticks", tuple(map(label, self.ticks)))


@dataclass(frozen=True, slots=True)
class Matrix:
    """Blocks in rows and columns. Cells without a ``gap`` share their borders."""

    rows: tuple[tuple[Block, ...], ...]
    across: Heading = Heading()
    down: Heading = Heading()
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame with a title around a block."""

    block: Block
    title: str = ""
    look: Look = Look.PLAIN
    tone: int | None = None
    key: Hashable = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", clean(self.title))


@dataclass(frozen=True, slots=True)
class Sheets:
    """A block on the first of several sheets that lie behind each other; each has a title."""

    block: Block
    titles: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "titles", tuple(map(clean, self.titles)))


@dataclass(frozen=True, slots=True)
class Sequence:
    """Blocks beside each other, or below each other. What is too wide for the page goes on in a new row."""

    blocks: tuple[Block, ...]
    across: bool = True
    gap: int = 1
    middle: bool = False
    """Blocks stand on one middle line, not on one upper edge."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """From what stands before to what comes after, with words along it."""

    lines: tuple[str, ...] = ()
    across: bool = True
    tall: int = 0
    """More lines of length, for links that cross beside it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(map(clean, self.lines)))


@dataclass(frozen=True, slots=True)
class Words:
    """Lines of text."""

    lines: tuple[str, ...]
    look: Look = Look.PLAIN
    tone: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(map(clean, self.lines)))


Block = Tile | Matrix | Frame | Sheets | Sequence | Arrow | Words


@dataclass(frozen=True, slots=True)
class Transfer:
    """An arrow between two tiles or frames, by their keys: data that goes from one to the other."""

    source: Hashable
    target: Hashable


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing with its text alternative.

    ``title``        one line that names it.
    ``description``  what it shows, for whoever does not see it.
    ``notes``        lines below the drawing: what signs in it mean.
    """

    title: str
    description: str
    block: Block
    notes: tuple[str, ...] = ()
    links: tuple[Transfer, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", clean(self.title))
        object.__setattr__(self, "description", clean(self.description))
        object.__setattr__(self, "notes", tuple(map(clean, self.notes)))
