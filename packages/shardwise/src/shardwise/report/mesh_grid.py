"""A device mesh as a table of ranks: rows are all axes but the last, columns the last one."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

MOST_ROWS = 64
MOST_COLUMNS = 32
_AXIS = re.compile(r"\s*(.+?)=(\d+)\s*")


@dataclass(frozen=True, slots=True)
class MeshGrid:
    """``rows`` are (coordinates, ranks); ``cut`` says what is left out."""

    axes: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    cut: str = ""


def mesh_grid(mesh: str) -> MeshGrid | None:
    """The grid of a mesh as it is printed, ``dp=2, tp=4``; None for no mesh.

    Example:
        >>> mesh_grid("dp=2, tp=2").rows
        (('dp=0', (0, 1)), ('dp=1', (2, 3)))
    """
    found = [_AXIS.fullmatch(part) for part in mesh.split(",")]
    axes = tuple((match[1], int(match[2])) for match in found if match is not None)
    if not axes or len(axes) != len(found):
        return None
    *outer, (name, size) = axes
    row_count = math.prod(count for _, count in outer)
    coordinates = itertools.product(*(range(count) for _, count in outer))
    rows = []
    for at, each in enumerate(itertools.islice(coordinates, MOST_ROWS)):
        label = ", ".join(f"{axis}={one}" for (axis, _), one in zip(outer, each, strict=True))
        rows.append((label, tuple(range(at * size, at * size + min(size, MOST_COLUMNS)))))
    columns = tuple(f"{name}={at}" for at in range(min(size, MOST_COLUMNS)))
    left_out = row_count > MOST_ROWS or size > MOST_COLUMNS
    cut = f"{row_count * size} ranks; the first {len(rows)} rows and {len(columns)} columns are shown" if left_out else ""
    return MeshGrid(axes, columns, tuple(rows), cut)
