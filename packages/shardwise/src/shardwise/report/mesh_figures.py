"""The meshes of a run as images: those that the program has made, and the one of ``--mesh``."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shardwise.diagnostics.run_record import MadeMesh, NamedLayout
from shardwise.drawing.mesh import Axes, fiber_text, mesh_picture, row_major
from shardwise.drawing.svg import alternative, svg_of
from shardwise.mesh.layout import Layout

GIVEN = "the mesh of --mesh"
MADE = "a mesh that the program makes"
BOTH = "the mesh of --mesh, which the program makes"
_AXIS = re.compile(r"\s*(.+?)=(\d+)\s*")


@dataclass(frozen=True, slots=True)
class MeshFigure:
    """``image`` as a data URL, what it is ``said`` to be, and the same in ``words``."""

    said: str
    image: str
    words: str


def mesh_figures(given: str, made: Iterable[MadeMesh]) -> list[MeshFigure]:
    """A figure for every mesh that the program has ``made``, and for one ``given`` as ``dp=2, tp=4`` if it was not."""
    asked = _sizes(given)
    found = [(_axes(mesh.axes), mesh.flattened) for mesh in made]
    figures = [_figure(BOTH if axes == asked else MADE, axes, flattened) for axes, flattened in found]
    if asked and all(axes != asked for axes, _ in found):
        figures.insert(0, _figure(GIVEN, asked, ()))
    return figures


def _sizes(mesh: str) -> Axes:
    found = [_AXIS.fullmatch(part) for part in mesh.split(",")]
    sizes = {match[1]: int(match[2]) for match in found if match is not None}
    return row_major(sizes) if len(sizes) == len(found) else {}


def _axes(layouts: Iterable[NamedLayout]) -> Axes:
    return {one.name: Layout(one.sizes, one.strides) for one in layouts}


def _figure(said: str, axes: Axes, flattened: Iterable[NamedLayout]) -> MeshFigure:
    picture = mesh_picture(axes)
    picture = replace(picture, notes=(*picture.notes, *_flattened(flattened)))
    # As an image it is a document of its own: nothing in it can reach the page.
    drawn = base64.b64encode(svg_of(picture).encode()).decode()
    return MeshFigure(said, f"data:image/svg+xml;base64,{drawn}", alternative(picture))


def _flattened(axes: Iterable[NamedLayout]) -> Iterator[str]:
    for name, layout in _axes(axes).items():
        yield f"{name} is several axes seen as one: {layout}, its first fiber is {{{fiber_text(layout)}}}"
