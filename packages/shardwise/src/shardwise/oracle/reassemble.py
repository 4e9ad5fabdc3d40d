"""How is a global tensor dealt out to the ranks of a mesh, and put together again? By its type, axis by axis.

R and I are the same tensor everywhere, P is a split into addends, S(i) a cut along dim i, outermost axis first. Putting
together is the inverse and can fail: ranks that should be equal differ, or nothing says how pieces combine.
Source: docs/semantics.md sections 2 and 7.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from shardwise.mesh.axis import MeshAxis
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
    pending = [at for at, axis in enumerate(grid.axes.values()) if type.is_pending_sum(axis, "the oracle")]
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


class Unequal(Unreadable):
    """Ranks that should hold equal tensors do not: the tensor of ``rank`` first differs from that of ``base``."""

    def __init__(self, message: str, axis: MeshAxis, base: int, rank: int) -> None:
        super().__init__(message)
        self.axis, self.base, self.rank = axis, base, rank


def reassemble(pieces: Sequence[torch.Tensor], type: TensorType, grid: Grid, *, tolerance: float = 0.0) -> torch.Tensor:
    """The value that local tensors in rank order denote.

    ``tolerance``  how far tensors that must be equal may be apart; 0: bit by bit.
    Errors: Unreadable.
    """
    values = fold(dict(enumerate(pieces)), type, tolerance=tolerance)
    if len(values) > 1:
        axis = next(axis for axis in grid.axes.values() if axis.size() > 1 and not _is_said(type, axis))
        said = "varies" if type.is_varying(axis) else "says nothing"
        raise Unreadable(f"the claimed type {said} over {axis!r}, without a dim that is sharded over it")
    return values[0]


def _is_said(type: TensorType, axis: MeshAxis) -> bool:
    return (
        type.is_equal(axis)
        or type.is_pending_sum(axis, "the oracle")
        or any(axis in entry_axes(entry) for entry in type.spec or ())
    )


def fold(
    pieces: Mapping[int, torch.Tensor], type: TensorType, *, tolerance: float = 0.0, check: bool = True
) -> dict[int, torch.Tensor]:
    """Local tensors by rank number, combined along every axis of which ``type`` says how: by the lowest rank of each.

    Along other axes the ranks stay apart; one value at rank 0 is left if there are none.
    ``check``  False takes the first of tensors that should be equal, without a look at the others.
    Errors: Unequal; Unreadable if tensors do not fit together, or ranks are missing.
    """
    values = dict(pieces)
    for axis in type.axes:
        if type.is_equal(axis):
            values = collapse(values, axis, _equal(type, axis, tolerance) if check else _first)
    for axis in type.axes:
        if type.is_pending_sum(axis, "the oracle"):
            values = collapse(values, axis, _sum)
    for dim, entry in enumerate(type.spec or ()):
        for axis in reversed(entry_axes(entry)):
            values = collapse(values, axis, functools.partial(_join, dim))
    return values


Parts = Mapping[int, torch.Tensor]
"""The tensors along one fiber of an axis, by rank number, in the order of the axis."""


def _first(parts: Parts) -> torch.Tensor:
    return next(iter(parts.values()))


def _sum(parts: Parts) -> torch.Tensor:
    first = _first(parts)
    return torch.stack(list(parts.values())).sum(0).to(first.dtype)


def _join(dim: int, parts: Parts) -> torch.Tensor:
    return torch.cat(list(parts.values()), dim=dim)


def _equal(type: TensorType, axis: MeshAxis, tolerance: float) -> Callable[[Parts], torch.Tensor]:
    def first(parts: Parts) -> torch.Tensor:
        (base, one), *others = parts.items()
        for at, (rank, part) in enumerate(others, 1):
            claim = f"claimed {type.get(axis)!r} over {axis!r}, but"
            if part.shape != one.shape:
                raise Unequal(f"{claim} the ranks' shapes differ", axis, base, rank)
            apart = distance(one, part)
            if apart > tolerance:
                raise Unequal(f"{claim} ranks 0 and {at} of it differ by up to {apart:.3g}", axis, base, rank)
        return one

    return first


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two elements; what is NaN in both is equal."""
    if torch.equal(one, other) or not one.numel():
        return 0.0
    return float(differences(one, other).max())


def differences(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The absolute difference of every element, float64; 0 where both are NaN or equal infinities, else infinite."""
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    difference = (one.to(wide) - other.to(wide)).abs()
    same = (one == other) | (one.isnan() & other.isnan())
    return difference.masked_fill(same, 0.0).nan_to_num(math.inf, math.inf)


def is_within(one: torch.Tensor, other: torch.Tensor, apart: float) -> bool:
    """Is no element further than ``apart`` from the other, of two tensors of one shape?"""
    if one.dtype == other.dtype and torch.equal(one, other):
        return True
    if one.ndim and len(one) > 1 and not all(is_within(one[at:][:1], other[at:][:1], apart) for at in (0, -1)):
        return False  # most that are not alike part at an end
    return not bool((differences(one, other) > apart).any())


def collapse(
    values: Mapping[int, torch.Tensor], axis: MeshAxis, combine: Callable[[Parts], torch.Tensor]
) -> dict[int, torch.Tensor]:
    """Combine the tensors along ``axis``; the lowest rank of each fiber stands for it."""
    fibers: dict[int, dict[int, torch.Tensor]] = {}
    for rank in sorted(values):
        fibers.setdefault(rank - axis.layout.offset(rank), {})[rank] = values[rank]
    for parts in fibers.values():
        if len(parts) != axis.size():
            raise Unreadable(f"only {len(parts)} of {axis.size()} ranks along {axis!r} have it")
    try:
        return {base: combine(parts) for base, parts in fibers.items()}
    except RuntimeError as error:
        raise Unreadable(f"the ranks' tensors do not fit together over {axis!r}: {error}") from None
