"""The picture of a program of the zoo: its mesh once for every axis, and the schedule of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from shardwise.diagnostics.printing.limits import counted
from shardwise.drawing.mesh import mesh_picture, row_major
from shardwise.drawing.model import Block, Look, Picture, Sequence, Words
from shardwise.drawing.tensors import LIMIT

from .catalogue import Entry
from .schedule_picture import MOST_UNITS, schedule_picture

Part = tuple[str, Picture]
"""A picture, and the title that it has beside others."""


def program_picture(
    found: Entry, sizes: Mapping[str, int], *, limit: int = LIMIT, units: int = MOST_UNITS, why: bool = True
) -> Picture:
    """Which ranks of a mesh of these sizes belong together along each axis, why, and when a pipeline's ranks do what.

    ``limit`` indices of an axis are drawn, and ``units`` of time beside each other; ``why`` is left out where the page
    says it beside the picture.
    Errors: SW905 if the schedule never ends.
    """
    rows = list(_rows(found, sizes, limit, units))
    parts = [part for row in rows for part in row]
    blocks = tuple(Sequence(tuple(_titled(*part) for part in row), gap=2) for row in rows)
    mesh = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
    return Picture(
        f"{found.name} on {mesh}: {counted(prod(sizes.values()), 'rank')}",
        " ".join([found.title, *(f"{title}: {picture.description}" for title, picture in parts)]),
        Sequence(blocks, across=False),
        (*((found.parts["Mesh"],) if why else ()), *(note for _, picture in parts for note in picture.notes)),
    )


def _rows(found: Entry, sizes: Mapping[str, int], limit: int, units: int) -> Iterator[list[Part]]:
    """What stands beside each other: the axes of the mesh, the further ones of the experts' mesh, the schedule."""
    own, *folded = found.program.meshes(sizes)
    yield [_along(own, axis, limit) for axis in own]
    for seen in folded:
        yield [_along(seen, axis, limit, ", as experts see the mesh") for axis in seen if axis not in own]
    if found.program.order is not None:
        schedule = schedule_picture(found.program.order, sizes["pp"], units, limit=limit)
        yield [(schedule.title, schedule)]


def _along(sizes: Mapping[str, int], axis: str, limit: int, seen: str = "") -> Part:
    return f"fibers of {axis}{seen}", mesh_picture(row_major(sizes), highlight=axis, limit=limit)


def _titled(title: str, picture: Picture) -> Block:
    return Sequence((Words((title,), Look.TITLE), picture.block), across=False)
