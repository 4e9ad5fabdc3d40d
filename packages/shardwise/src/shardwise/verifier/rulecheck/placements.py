"""Which placements of a function's tensor arguments are worth trying? All that a mesh axis can plausibly have.

Per axis: everything replicated; every choice of dims of one size, divisible by the axis, sharded together; each float
tensor a pending sum alone, and all of them; everything invariant. Several axes: every combination.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch

from shardwise.types.placement import I, P, PerMeshAxisSpmdType, R, S

OneAxis = dict[str, PerMeshAxisSpmdType]
Placement = dict[str, dict[str, PerMeshAxisSpmdType]]
"""Argument -> mesh axis -> type."""


def enumerate_placements(tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> Iterator[Placement]:
    """Every combination of the axes' placements that shards no dim into unequal pieces."""
    per_axis = [list(_along(tensors, size)) for size in sizes.values()]
    for choice in itertools.product(*per_axis):
        placement = {name: dict(zip(sizes, (one[name] for one in choice), strict=True)) for name in tensors}
        if all(_divisible(tensor, placement[name], sizes) for name, tensor in tensors.items()):
            yield placement


def _along(tensors: Mapping[str, torch.Tensor], size: int) -> Iterator[OneAxis]:
    replicated: OneAxis = dict.fromkeys(tensors, R)
    yield replicated
    lengths = sorted({n for tensor in tensors.values() for n in tensor.shape if n and n % size == 0})
    for length in lengths:
        choices: list[list[PerMeshAxisSpmdType]] = [
            [R, *(S(dim) for dim, n in enumerate(tensor.shape) if n == length)] for tensor in tensors.values()
        ]
        for choice in itertools.product(*choices):
            if any(place is not R for place in choice):
                yield dict(zip(tensors, choice, strict=True))
    floats = [name for name, tensor in tensors.items() if tensor.is_floating_point() or tensor.is_complex()]
    for name in floats:
        yield {**replicated, name: P}
    if len(floats) > 1:
        yield {**replicated, **dict.fromkeys(floats, P)}
    if tensors:
        yield dict.fromkeys(tensors, I)


def _divisible(tensor: torch.Tensor, places: Mapping[str, object], sizes: Mapping[str, int]) -> bool:
    pieces: dict[int, int] = {}
    for axis, place in places.items():
        if isinstance(place, S):
            pieces[place.dim] = pieces.get(place.dim, 1) * sizes[axis]
    return all(tensor.shape[dim] % count == 0 for dim, count in pieces.items())


def describe(placement: Mapping[str, object]) -> str:
    """``act {tp: S(1)}, w {tp: S(0)}``."""
    return ", ".join(
        f"{name} {{{', '.join(f'{axis}: {place!r}' for axis, place in places.items())}}}"
        if isinstance(places, Mapping)
        else f"{name} {places!r}"
        for name, places in placement.items()
    )
