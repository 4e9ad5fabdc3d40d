"""How the axes of a mesh lie on nodes: which groups stay inside one, and the order of axes that keeps the busy ones in.

Decided on layouts, without listing ranks. Ranks of a node are numbered one after the other, as launchers number them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .axis import MeshAxis
from .index_map import IndexMap
from .layout import Atom


@dataclass(frozen=True, slots=True)
class AxisOnNodes:
    """The groups of one axis.

    ``groups``   one rank of each group is ``groups(j)``, its others are that plus ``fiber(i)``.
    ``nodes``    over how many nodes a group lies; None if that differs from group to group.
    """

    axis: MeshAxis
    fiber: IndexMap
    groups: IndexMap
    nodes: int | None

    @property
    def is_inside(self) -> bool:
        """Every group lies in one node."""
        return self.nodes == 1


def on_nodes(axis: MeshAxis, ranks: int, per_node: int) -> AxisOnNodes:
    """How the groups of ``axis`` lie in a job of so many ranks.

    A digit of stride s and size n lies inside nodes of r ranks if s n divides r, steps from node to node if r divides
    s, and is cut in an inner and an outer part if s divides r and r divides s n.
    Example:
        >>> on_nodes(MeshAxis.of(4, 2), 16, 8).nodes, on_nodes(MeshAxis.of(4, 4), 16, 8).nodes
        (1, 2)
    """
    fiber = IndexMap.of_modes(axis.layout.atoms)
    return AxisOnNodes(axis, fiber, fiber.complement(ranks), nodes_of(fiber.modes, per_node))


def nodes_of(fiber: Iterable[Atom], per_node: int) -> int | None:
    """Over how many nodes of so many ranks each group of an axis with this fiber lies; None if groups differ.

    Example:
        >>> nodes_of([(4, 2)], 8), nodes_of([(4, 4)], 8), nodes_of([(3, 2)], 4)
        (1, 2, None)
    """
    nodes = 1
    for size, stride in fiber:
        if per_node % (stride * size) == 0:
            continue
        if stride % per_node == 0:
            nodes *= size
        elif per_node % stride == 0 and stride * size % per_node == 0:
            nodes *= stride * size // per_node
        else:
            return None
    return nodes


def launch_order(sizes: Mapping[str, int], busiest_first: Sequence[str]) -> IndexMap:
    """From the mesh as it is written to the rank of each of its places, so that the busiest axis has adjacent ranks.

    Example:
        >>> print(launch_order({"tp": 4, "dp": 2}, ["tp", "dp"]))
        (4, 2):(1, 4)
    """
    strides = {name: math.prod(sizes[one] for one in busiest_first[:at]) for at, name in enumerate(busiest_first)}
    return IndexMap(tuple(sizes.values()), tuple(strides[name] for name in sizes))
