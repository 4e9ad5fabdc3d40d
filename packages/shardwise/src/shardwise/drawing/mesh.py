"""A mesh drawn: its ranks in a grid, the fibers of one axis told apart, the nodes framed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout
from shardwise.mesh.placement_on_nodes import nodes_of

from .model import Block, Picture, Tile
from .nesting import Dim, Place, indices, matrix_of_matrices
from .tensors import LIMIT, fitting_limit

MOST_LISTED = 8

Axes = Mapping[str, Layout]
"""The axes of a mesh by name, outermost first."""


def row_major(sizes: Mapping[str, int]) -> dict[str, Layout]:
    """The axes of these sizes in the order in which ranks count through them: the last one fastest."""
    strides = [math.prod([*sizes.values()][at + 1 :]) for at in range(len(sizes))]
    return {name: Layout(size, stride) for (name, size), stride in zip(sizes.items(), strides, strict=True)}


def rank_at(axes: Axes, coordinates: Sequence[int]) -> int:
    """The rank with these coordinates, one for each axis."""
    return sum(offset_at(layout, at) for layout, at in zip(axes.values(), coordinates, strict=True))


def mesh_picture(
    axes: Axes, *, highlight: str | None = None, node_size: int | None = None, limit: int = LIMIT
) -> Picture:
    """The ranks of a mesh in a grid, a matrix of matrices for more than two axes.

    ``highlight``  the axis whose fibers are told apart, each by a number (``#0``) and a colour.
    ``node_size``  so many consecutive ranks share a node; nodes are framed.
    """
    sizes = {name: layout.numel() for name, layout in axes.items()}
    limit = fitting_limit(list(sizes.values()), limit)
    dims = [Dim(name, indices(size, limit)) for name, size in sizes.items()]
    world = math.prod(sizes.values())
    least = len(str(max(world - 1, 0)))

    def cell(place: Place) -> Block:
        coordinates = [part.start for part in place]
        rank = rank_at(axes, coordinates)
        lines, tone = [str(rank)], None
        if highlight is not None:
            tone = _fiber(sizes, coordinates, highlight)
            lines.append(f"#{tone}")
        node = None if node_size is None else rank // node_size
        if node is not None:
            lines.append(f"n{node}")
        return Tile(tuple(lines), tone, least=least, key=rank, region=node)

    title = f"mesh {', '.join(f'{name}={size}' for name, size in sizes.items()) or 'of one rank'}: {_ranks(world)}"
    description = f"The ranks of a mesh in a grid. {_order(axes)}"
    return Picture(title, description, matrix_of_matrices(dims, cell), tuple(_notes(axes, highlight, node_size)))


def fibers(axes: Axes, name: str, most: int = MOST_LISTED) -> list[list[int] | range]:
    """The first ``most`` fibers of an axis, each as its ranks in order."""
    sizes = {other: layout.numel() for other, layout in axes.items()}
    others = {other: size for other, size in sizes.items() if other != name}
    own, found = _places(axes[name]), list[list[int] | range]()
    for number in range(min(most, math.prod(others.values()))):
        rest, coordinates = number, dict.fromkeys(axes, 0)
        for other, size in reversed(others.items()):
            rest, coordinates[other] = divmod(rest, size)
        first = rank_at(axes, list(coordinates.values()))
        if isinstance(own, range):
            found.append(range(first + own.start, first + own.stop, own.step))
        else:
            found.append([first + place for place in own])
    return found


def fiber_text(layout: Layout) -> str:
    """The ranks of the first fiber of an axis: ``0,1,2,3``, or ``0,1,2,…,63``."""
    return _listed(_places(layout))


def _places(layout: Layout) -> list[int] | range:
    """The rank offsets of all places of a fiber; of a plain one no list, however many there are."""
    size, step = layout.numel(), offset_at(layout, 1) if layout.numel() > 1 else 1
    if len(layout.atoms) <= 1:
        return range(0, size * step, step)
    return [offset_at(layout, at) for at in range(size)]


def offset_at(layout: Layout, at: int) -> int:
    """The rank offset of the ``at``-th place of a fiber: the inverse of ``Layout.place``."""
    return IndexMap.of_modes(layout.atoms)(at)


def _fiber(sizes: Mapping[str, int], coordinates: Sequence[int], name: str) -> int:
    number = 0
    for (other, size), at in zip(sizes.items(), coordinates, strict=True):
        number = number if other == name else number * size + at
    return number


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _order(axes: Axes) -> str:
    parts = [f"along {name} ranks are {layout} apart as size:stride" for name, layout in axes.items()]
    return "; ".join(parts).capitalize() + "." if parts else "There is one rank."


def _notes(axes: Axes, highlight: str | None, node_size: int | None) -> list[str]:
    notes = []
    if highlight is not None:
        shown = fibers(axes, highlight)
        count = math.prod(layout.numel() for name, layout in axes.items() if name != highlight)
        told = [f"#{at}={{{_listed(fiber)}}}" for at, fiber in enumerate(shown)]
        more = f", and {count - len(shown)} more" if count > len(shown) else ""
        notes.append(f"fibers of {highlight}, the ranks that talk when it communicates: {' '.join(told)}{more}")
    if node_size is not None:
        inside = [name for name, layout in axes.items() if stays_inside(axes, name, node_size)]
        across = [name for name in axes if name not in inside]
        told = [f"{', '.join(inside)} inside a node"] * bool(inside) + [f"{', '.join(across)} between nodes"] * bool(
            across
        )
        notes.append(f"thick lines frame nodes of {_ranks(node_size)}, n0, n1 and so on: {'; '.join(told)}")
    return notes


def stays_inside(axes: Axes, name: str, node_size: int) -> bool:
    """Whether every fiber of an axis lies within one node of ``node_size`` consecutive ranks."""
    world = math.prod(layout.numel() for layout in axes.values())
    return nodes_of(axes[name].atoms, min(node_size, world)) == 1


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) <= MOST_LISTED:
        return ",".join(map(str, ranks))
    return f"{','.join(map(str, ranks[:3]))},…,{ranks[-1]}"
