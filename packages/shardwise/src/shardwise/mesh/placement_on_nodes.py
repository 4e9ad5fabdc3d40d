"""How the axes of a mesh lie on nodes: which groups stay inside one, and the order of axes that keeps the busy ones in.

Decided on layouts, without listing ranks. Ranks of a node are numbered one after the other, as launchers number them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .axis import MeshAxis
from .index_map import IndexMap
from .layout import Atom, Layout


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
    order = IndexMap((), ())
    for name in busiest_first:
        order = order.repeated(IndexMap((sizes[name],), (1,)))
    digits = dict(zip(reversed(busiest_first), order.modes, strict=True))
    return IndexMap.of_modes([digits[name] for name in sizes])


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a job: ``first`` leads to the first rank of each, ``inside`` to its ranks counted from that one, and
    ``numbers`` from a rank to where it comes node by node."""

    first: IndexMap
    inside: IndexMap
    numbers: IndexMap

    def place(self, rank: int) -> tuple[int, int]:
        """The node of a rank, and the rank's number on it."""
        return divmod(self.numbers(rank), self.inside.size)


def nodes_of_job(ranks: int, per_node: int) -> Nodes:
    """``ranks`` ranks on nodes of ``per_node``.

    Example:
        >>> nodes_of_job(16, 8).place(13)
        (1, 5)
    """
    whole, node = IndexMap.compact((ranks,)), IndexMap((per_node,), (1,))
    return Nodes(*whole.divide(node), whole.divided(node).inverse())


def other_axes(sizes: Sequence[int], others: Mapping[str, int]) -> dict[str, MeshAxis]:
    """The axes of a second mesh over the same ranks, numbered row by row as the first.

    Example:
        >>> other_axes((2, 2, 2), {"edp": 2, "ep": 4})["ep"].layout == Layout(4, 1)
        True
    """
    whole = IndexMap.compact(sizes).flatten(0, len(sizes)).unflatten(0, tuple(others.values()))
    return {name: MeshAxis(Layout(*mode)) for name, mode in zip(others, whole.modes, strict=True)}
