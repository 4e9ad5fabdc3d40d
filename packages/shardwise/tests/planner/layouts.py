"""All types of a tensor over a mesh, and what local tensors of them mean: cut by ``torch.chunk``, put together again.

Written without the planner, so that the two can be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from shardwise.mesh.axis import MeshAxis
from shardwise.types.placement import I, P, R, V
from shardwise.types.spec import entry_axes, make_entry, spec_of
from shardwise.types.tensor_type import TensorType


def axes_of(sizes: Sequence[int]) -> list[MeshAxis]:
    """Axes of these sizes, the first outermost."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return [MeshAxis.of(size, stride) for size, stride in zip(sizes, reversed(strides), strict=True)]


def all_types(axes: Sequence[MeshAxis], ndim: int, letters: Sequence[object] = (R, I, P)) -> list[TensorType]:
    """Every type over ``axes``: one of ``letters`` or a shard on each, in every order of axes on one dim."""
    found = []
    for places in itertools.product((*letters, *range(ndim)), repeat=len(axes)):
        cutting = [[axis for axis, place in zip(axes, places, strict=True) if place == dim] for dim in range(ndim)]
        local = {axis: V if isinstance(place, int) else place for axis, place in zip(axes, places, strict=True)}
        for entries in itertools.product(*(itertools.permutations(cut) for cut in cutting)):
            found.append(TensorType.of(local, spec_of(map(make_entry, entries))))
    return found


def coordinates(axes: Sequence[MeshAxis]) -> Iterator[dict[MeshAxis, int]]:
    """Where every rank stands, in the order of the ranks."""
    for place in itertools.product(*(range(axis.size()) for axis in axes)):
        yield dict(zip(axes, place, strict=True))


def piece(x: Tensor, dim: int, axis: MeshAxis, at: int) -> Tensor:
    """Piece ``at`` of ``torch.chunk``, empty where it gives fewer."""
    chunks = x.chunk(axis.size(), dim)
    return chunks[at] if at < len(chunks) else x.narrow(dim, 0, 0)


def own_part(x: Tensor, type: TensorType, place: Mapping[MeshAxis, int]) -> Tensor:
    """The block of ``x`` that the rank at ``place`` has."""
    for dim, entry in enumerate(type.spec or ()):
        for axis in entry_axes(entry):
            x = piece(x, dim, axis, place[axis])
    return x


def represent(value: Tensor, type: TensorType, axes: Sequence[MeshAxis], seed: int) -> list[Tensor]:
    """Local tensors of every rank that denote ``value``: random addends where a sum is pending."""
    generator = torch.Generator().manual_seed(seed)
    addends: dict[tuple[int, ...], Tensor] = {}
    pending = [axis for axis in axes if type.is_partial(axis)]
    rest = value
    for place in itertools.product(*(range(axis.size()) for axis in pending)):
        addends[place] = torch.randint(-8, 8, value.shape, generator=generator).to(value.dtype)
        rest = rest - addends[place]
    if addends:
        addends[next(iter(addends))] += rest
    return [
        own_part(addends[tuple(place[axis] for axis in pending)] if pending else value, type, place).clone()
        for place in coordinates(axes)
    ]


def denote(pieces: Sequence[Tensor], type: TensorType, axes: Sequence[MeshAxis], shape: Sequence[int]) -> Tensor:
    """The value that the local tensors denote. Asserts that ranks agree where the type says so."""
    whole = torch.zeros(tuple(shape), dtype=pieces[0].dtype)
    marks = torch.arange(whole.numel()).reshape(whole.shape)
    seen: dict[tuple[int, ...], Tensor] = {}
    for place, local in zip(coordinates(axes), pieces, strict=True):
        part = own_part(marks, type, place)
        assert part.shape == local.shape, (type, place, part.shape, local.shape)
        counted = tuple(at for axis, at in place.items() if not type.is_equal(axis))
        if counted in seen:
            torch.testing.assert_close(local, seen[counted], rtol=0, atol=0)
            continue
        seen[counted] = local
        whole.view(-1)[part.reshape(-1)] += local.reshape(-1)
    return whole
