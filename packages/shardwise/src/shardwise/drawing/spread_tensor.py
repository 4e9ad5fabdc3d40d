"""A tensor on the ranks of a mesh: which rank holds which block, who holds the same, whose tensors are combined.

A dim that is sharded is cut as ``torch.chunk`` cuts: ceil(length / ranks) indices for every rank, the last ones may
have fewer, or none. Of several axes on one dim each cuts the pieces of the one before it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardwise.mesh.layout import Layout
from shardwise.mesh.names import NamedAxis
from shardwise.types.notation import TypedShape, format_placement
from shardwise.types.spec import entry_axes

from .mesh import offset_at

MOST_RANKS = 4
"""So many ranks are listed in a cell."""

Coordinates = Mapping[NamedAxis, int]


@dataclass(frozen=True)
class MeshPoint:
    """An axis that stands in pictures without being one of a program: a name for a layout."""

    name: str
    layout: Layout

    @property
    def sort_key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(-stride for stride in self.layout.strides or (0,)), tuple(-size for size in self.layout.sizes)

    def size(self) -> int:
        return self.layout.numel()

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ShardRange:
    """Indices ``start`` to ``stop`` of a dim, and the place on each of its axes of the ranks that hold them."""

    start: int
    stop: int
    at: tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """A dim cut over axes of these sizes, the outermost first; empty pieces included. None is listed: a mesh is large.

    Example:
        >>> pieces = Pieces(5, (2, 2))
        >>> [(one.start, one.stop, one.at) for one in pieces.held()]
        [(0, 2, (0, 0)), (2, 3, (0, 1)), (3, 4, (1, 0)), (4, 5, (1, 1))]
        >>> pieces.at((0, 1)) == pieces.holding(2), pieces.lengths()
        (True, Counter({1: 3, 2: 1}))
    """

    length: int
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return math.prod(self.counts)

    def at(self, place: Sequence[int]) -> ShardRange:
        """The piece of the ranks at this place on the axes."""
        start, stop = 0, self.length
        for count, at in zip(self.counts, place, strict=True):
            step = -(-(stop - start) // count)
            start, stop = min(start + at * step, stop), min(start + (at + 1) * step, stop)
        return ShardRange(start, stop, tuple(place))

    def holding(self, index: int) -> ShardRange:
        """The piece in which this index of the dim lies."""
        start, stop, place = 0, self.length, list[int]()
        for count in self.counts:
            step = -(-(stop - start) // count)
            place.append((index - start) // step)
            start += place[-1] * step
            stop = min(start + step, stop)
        return ShardRange(start, stop, tuple(place))

    def held(self) -> Iterator[ShardRange]:
        """Those with any index, in order."""
        index = 0
        while index < self.length:
            one = self.holding(index)
            yield one
            index = one.stop

    def lengths(self) -> Counter[int]:
        """How many pieces there are of each length."""
        found = Counter({self.length: 1})
        for count in self.counts:
            cut: Counter[int] = Counter()
            for length, times in found.items():
                step = -(-length // count)
                full = length // step if step else 0
                cut[step] += times * full
                cut[length - full * step] += times * (full < count)
                cut[0] += times * max(0, count - full - 1)
            found = +cut
        return found


class SpreadTensor:
    """A tensor of global ``shape`` with a type, on the ranks of a mesh.

    ``axes``  those of the mesh and of the type, outermost first. An axis that a type has and the mesh has not (two axes
              seen as one) replaces those of the mesh that it meets.
    """

    def __init__(self, typed: TypedShape, mesh: Sequence[NamedAxis]) -> None:
        self.typed, self.type = typed, typed.type
        own = list(self.type.axes)
        others = [axis for axis in mesh if axis not in own and all(axis.layout.isorthogonal(one.layout) for one in own)]
        self.axes: list[NamedAxis] = sorted([*own, *others], key=lambda axis: axis.sort_key)
        if set(self.axes) == set(mesh):
            self.axes = list(mesh)
        entries = self.type.spec or ()
        self.entries = [entry_axes(entry) for entry in entries] + [()] * (len(typed.shape) - len(entries))
        self.pieces = [
            Pieces(length, tuple(axis.size() for axis in axes))
            for length, axes in zip(typed.shape, self.entries, strict=True)
        ]

    @cached_property
    def sharded(self) -> list[NamedAxis]:
        return [axis for axes in self.entries for axis in axes]

    @cached_property
    def partial(self) -> list[NamedAxis]:
        return [axis for axis in self.axes if self.type.is_partial(axis)]

    @cached_property
    def apart(self) -> list[NamedAxis]:
        """Axes whose ranks hold tensors of their own: V, and no dim is sharded over them."""
        return [axis for axis in self.axes if self.type.is_varying(axis) and axis not in self.sharded]

    @cached_property
    def replicas(self) -> list[NamedAxis]:
        """Axes whose ranks all hold the same: R, I, and what is not said."""
        return [axis for axis in self.axes if axis not in (*self.sharded, *self.partial, *self.apart)]

    def rank(self, at: Coordinates) -> int:
        return sum(offset_at(axis.layout, at.get(axis, 0)) for axis in self.axes)

    def holders(self, at: Coordinates) -> str:
        """The ranks at these coordinates: ``0 + 1`` are addends of one sum, ``0 = 2`` hold the same."""
        return joined(" = ", [self._combined({**at, **more}, self.partial) for more in self.places(self.replicas)])

    def _combined(self, at: Coordinates, axes: Sequence[NamedAxis]) -> str:
        """``0 + 1``; ``max(0, 1)`` where the larger element is meant. All of ``axes`` are partial."""
        if not axes:
            return str(self.rank(at))
        kind = self.reduction(axes[0])
        alike = list(itertools.takewhile(lambda axis: self.reduction(axis) == kind, axes))
        terms = [self._combined({**at, **more}, axes[len(alike) :]) for more in self.places(alike)]
        return combined(kind, terms)

    def reduction(self, axis: NamedAxis) -> str:
        """How the tensors along a partial axis combine: ``sum``, ``avg``, ``max`` or ``min``."""
        is_mean = format_placement(self.type, axis) == "P(avg)"
        return "avg" if is_mean else str(self.type.get(axis).reduction)

    def fibers(self, axis: NamedAxis) -> Iterator[list[str]]:
        """The ranks of every fiber of an axis that hold any element."""
        for at in self.places([other for other in self.axes if other is not axis]):
            if self.holds_any(at):
                yield [str(self.rank({**at, **more})) for more in self.places([axis])]

    def holds_any(self, at: Coordinates) -> bool:
        return 0 in self.typed.shape or all(start < stop for start, stop in self.owned(at))

    def slices(self, at: Coordinates) -> str:
        """What the rank at these coordinates holds, as ``[0:2, :]``."""
        if not self.holds_any(at):
            return "nothing"
        whole = [
            ":" if (start, stop) == (0, length) else f"{start}:{stop}"
            for (start, stop), length in zip(self.owned(at), self.typed.shape, strict=True)
        ]
        return f"[{', '.join(whole)}]"

    @staticmethod
    def places(axes: Sequence[NamedAxis]) -> list[dict[NamedAxis, int]]:
        """All coordinates along these axes, the middle left out where there are very many."""
        shown = [_ends(axis.size()) for axis in axes]
        return [dict(zip(axes, at, strict=True)) for at in itertools.product(*shown)]

    def owned(self, rank_at: Coordinates) -> list[tuple[int, int]]:
        """Start and stop on every dim of what the rank at these coordinates holds."""
        cuts = zip(self.entries, self.pieces, strict=True)
        held = (pieces.at([rank_at.get(axis, 0) for axis in axes]) for axes, pieces in cuts)
        return [(one.start, one.stop) for one in held]


def _ends(size: int) -> list[int]:
    return list(range(size)) if size <= 2 * MOST_RANKS else [*range(MOST_RANKS), *range(size - MOST_RANKS, size)]


def joined(sign: str, items: Sequence[str]) -> str:
    """At most ``MOST_RANKS`` items with a sign between them, the middle left out."""
    items = list(items)
    if len(items) > MOST_RANKS:
        items = [*items[: MOST_RANKS - 2], "…", items[-1]]
    return sign.join(items)


def combined(kind: str, terms: Sequence[str]) -> str:
    """Ranks whose tensors combine: ``0 + 1``, or ``max(0, 1)``."""
    return joined(" + ", terms) if kind == "sum" or len(terms) == 1 else f"{kind}({joined(', ', terms)})"
