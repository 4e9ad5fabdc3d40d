"""How is a global tensor dealt out to the ranks of a mesh, and put together again? By its type, axis by axis.

R and I are the same tensor everywhere, P is a split into addends, S(i) a cut along dim i, outermost axis first. Putting
together is the inverse and can fail: ranks that should be equal differ, or nothing says how pieces combine.
Source: semantics sections 2 and 7.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import I, P, R, V
from shardwise.types.spec import entry_axes
from shardwise.types.tensor_type import TensorType

Coordinates = tuple[int, ...]


class Unreadable(Exception):
    """Local tensors that cannot be read as one value of the claimed type."""


@dataclass(frozen=True)
class Grid:
    """A mesh of named axes, outermost first; ranks are numbered in row-major order."""

    axes: Mapping[str, MeshAxis]

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> Grid:
        """The grid with these axes and sizes."""
        values = list(sizes.values())
        strides = [math.prod(values[at + 1 :]) for at in range(len(values))]
        return cls(
            {name: MeshAxis.of(size, stride) for (name, size), stride in zip(sizes.items(), strides, strict=True)}
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size() for axis in self.axes.values())

    @property
    def coordinates(self) -> list[Coordinates]:
        """Of every rank, in rank order."""
        return list(itertools.product(*map(range, self.sizes)))


def deal(value: torch.Tensor, type: TensorType, grid: Grid, generator: torch.Generator) -> list[torch.Tensor]:
    """The local tensors of ``value``, in rank order; ``generator`` draws the addends of pending sums."""
    pending = [at for at, axis in enumerate(grid.axes.values()) if type.get(axis) is P]
    addends: dict[Coordinates, torch.Tensor] = {(): value}
    for at in pending:
        addends = {
            (*coordinates, index): part
            for coordinates, whole in addends.items()
            for index, part in enumerate(_addends(whole, grid.sizes[at], generator))
        }
    return [
        _own_piece(addends[tuple(coordinates[at] for at in pending)], type, grid, coordinates)
        for coordinates in grid.coordinates
    ]


def _addends(value: torch.Tensor, count: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Random terms that sum to ``value``; the last takes what is left."""
    if value.is_floating_point() or value.is_complex():
        terms = [torch.randn(value.shape, dtype=value.dtype, generator=generator) for _ in range(count - 1)]
    else:
        terms = [torch.randint(-3, 4, value.shape, dtype=value.dtype, generator=generator) for _ in range(count - 1)]
    return [*terms, value - sum(terms, torch.zeros_like(value))]


def _own_piece(value: torch.Tensor, type: TensorType, grid: Grid, coordinates: Coordinates) -> torch.Tensor:
    at = dict(zip(grid.axes.values(), coordinates, strict=True))
    for dim, entry in enumerate(type.spec or ()):
        for axis in entry_axes(entry):
            length = value.shape[dim] // axis.size()
            if length * axis.size() != value.shape[dim]:
                raise Unreadable(f"dim {dim} of size {value.shape[dim]} cannot be cut into {axis.size()} equal pieces")
            value = value.narrow(dim, at[axis] * length, length)
    return value


def reassemble(pieces: Sequence[torch.Tensor], type: TensorType, grid: Grid, *, tolerance: float = 0.0) -> torch.Tensor:
    """The value that local tensors in rank order denote.

    ``tolerance``  how far tensors that must be equal may be apart; 0: bit by bit.
    Errors: Unreadable.
    """
    left = list(grid.axes.values())
    tensors = dict(zip(grid.coordinates, pieces, strict=True))
    for axis in [axis for axis in left if type.get(axis) in (R, I) or axis.size() == 1]:
        tensors = _collapse(tensors, left, axis, _equal(type, axis, tolerance))
    for axis in [axis for axis in left if type.get(axis) is P]:
        tensors = _collapse(tensors, left, axis, _sum)
    for dim, entry in enumerate(type.spec or ()):
        for axis in reversed(entry_axes(entry)):
            tensors = _collapse(tensors, left, axis, functools.partial(torch.cat, dim=dim))
    if left:
        axis = left[0]
        said = "varies" if type.get(axis) is V else "says nothing"
        raise Unreadable(f"the claimed type {said} over {axis!r}, without a dim that is sharded over it")
    return tensors[()]


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(parts).sum(0)


def _equal(type: TensorType, axis: MeshAxis, tolerance: float) -> Callable[[list[torch.Tensor]], torch.Tensor]:
    def first(parts: list[torch.Tensor]) -> torch.Tensor:
        for rank, part in enumerate(parts):
            if part.shape != parts[0].shape:
                raise Unreadable(f"claimed {type.get(axis)!r} over {axis!r}, but the ranks' shapes differ")
            apart = _distance(parts[0], part)
            if apart > tolerance:
                raise Unreadable(
                    f"claimed {type.get(axis)!r} over {axis!r}, but ranks 0 and {rank} of it differ by up to "
                    f"{apart:.3g}"
                )
        return parts[0]

    return first


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    if torch.equal(one, other) or not one.numel():
        return 0.0
    difference = (one.to(torch.float64) - other.to(torch.float64)).abs()
    same = (one == other) | (one.isnan() & other.isnan())
    return float(difference.masked_fill(same, 0.0).nan_to_num(math.inf, math.inf).max())


def _collapse(
    tensors: Mapping[Coordinates, torch.Tensor],
    left: list[MeshAxis],
    axis: MeshAxis,
    combine: Callable[[list[torch.Tensor]], torch.Tensor],
) -> dict[Coordinates, torch.Tensor]:
    """Combine the tensors along ``axis``, which leaves the list of axes that are ``left``."""
    at = left.index(axis)
    left.pop(at)
    groups: dict[Coordinates, list[torch.Tensor]] = {}
    for coordinates, tensor in sorted(tensors.items(), key=lambda item: item[0]):
        groups.setdefault((*coordinates[:at], *coordinates[at + 1 :]), []).append(tensor)
    try:
        return {coordinates: combine(parts) for coordinates, parts in groups.items()}
    except RuntimeError as error:
        raise Unreadable(f"the ranks' tensors do not fit together over {axis!r}: {error}") from None
