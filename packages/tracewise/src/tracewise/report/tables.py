"""Tables of a page: the first rows are in the HTML, all are in data that the page's script sorts, filters and pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracewise.report.html import visible

ROWS_IN_HTML = 50


class Cell(NamedTuple):
    """One cell: its text, where it leads, what it sorts by, and a class that the style knows."""

    text: str
    href: str = ""
    sort: float | None = None
    kind: str = ""
    title: str = ""


class Column(NamedTuple):
    """One column; numbers are set to the right."""

    name: str
    is_number: bool = False


@dataclass(slots=True)
class DataTable:
    """A table with its caption. ``filters`` names the column whose values become filter buttons."""

    id: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]] = field(default_factory=list)
    filters: str = ""

    def __post_init__(self) -> None:
        """Columns in which no row has anything are left out."""
        kept = [n for n in range(len(self.columns)) if any(row[n].text for row in self.rows)]
        self.columns = [self.columns[n] for n in kept]
        self.rows = [[row[n] for n in kept] for row in self.rows]

    @property
    def shown(self) -> list[list[Cell]]:
        return self.rows[:ROWS_IN_HTML]

    @property
    def data(self) -> list[list[Any]]:
        """The rows for the script; what is empty at the end of a cell is left out."""
        return [[_packed(cell) for cell in row] for row in self.rows]

    @property
    def has_script(self) -> bool:
        return len(self.rows) > 5


def _packed(cell: Cell) -> str | list[Any]:
    """The text alone where there is nothing else; a sort value of 0 is something."""
    last = max(index for index, value in enumerate(cell) if value or value == 0 or index == 0)
    values = [visible(value) if isinstance(value, str) else value for value in cell[: last + 1]]
    return values if last else visible(cell.text)
