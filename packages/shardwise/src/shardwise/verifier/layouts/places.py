"""Where in the tensor of one rank does a rank's tensor lie? Found on the rank that has it, so that it need not travel.

A place says for every dim which stretches of the whole follow each other in the piece:

    piece [2, 4] of a whole [8, 4], third of four ranks        ((4, 2, 1),), ((0, 4, 1),)
    query, key and value of a merged weight, one rank's part   ((0, 2, 1), (8, 2, 1), (16, 2, 1)), ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from shardwise.oracle.observed_layout import merged_parts
from shardwise.oracle.reassemble import differences

Stretch = tuple[int, int, int]
"""Start, length and step along a dim of the whole."""
Place = tuple[tuple[Stretch, ...], ...]
"""The stretches of each dim."""
TRIED = 20_000
"""Places that are looked at before a tensor counts as having none."""
SEARCHED = 500
"""Places of which the nearest is looked for."""


def taken(whole: torch.Tensor, place: Place) -> torch.Tensor:
    """The piece of ``whole`` at ``place``: a view of it where it is in one stretch."""
    for dim, stretches in enumerate(place):
        if stretches == ((0, whole.shape[dim], 1),):
            continue
        parts = [_along(whole, dim, stretch) for stretch in stretches]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim)
    return whole


def _along(whole: torch.Tensor, dim: int, stretch: Stretch) -> torch.Tensor:
    start, length, step = stretch
    if step == 1:
        return whole.narrow(dim, start, length)
    at: list[slice] = [slice(None)] * whole.ndim
    at[dim] = slice(start, start + (length - 1) * step + 1, step)
    return whole[tuple(at)]


def fits(piece: torch.Tensor, whole: torch.Tensor, place: Place) -> bool:
    """True if ``place`` is one of ``whole`` that has the shape of ``piece``."""
    return (
        len(place) == piece.ndim == whole.ndim
        and tuple(sum(length for _, length, _ in stretches) for stretches in place) == tuple(piece.shape)
        and all(
            start + (length - 1) * step < whole.shape[dim]
            for dim, stretches in enumerate(place)
            for start, length, step in stretches
        )
    )


def place_of(piece: torch.Tensor, whole: torch.Tensor, apart: float, first: Place | None = None) -> Place | None:
    """Where the elements of ``whole`` are those of ``piece``, up to ``apart``; None if that is nowhere.

    ``first``  is tried before all others.
    """
    if piece.ndim != whole.ndim or not piece.numel() or piece.dtype != whole.dtype:
        return None
    if first is not None and fits(piece, whole, first) and _lies(piece, whole, first, apart):
        return first
    probes = _probes(piece)
    dims = [tuple(_stretches(here, there)) for here, there in zip(piece.shape, whole.shape, strict=True)]
    for place in itertools.islice(itertools.product(*dims), TRIED):
        if all(_near(value, whole[_index(place, at)], apart) for at, value in probes) and _lies(
            piece, whole, place, apart
        ):
            return place
    return None


def nearest_place(piece: torch.Tensor, whole: torch.Tensor, near: float, first: Place | None = None) -> Place | None:
    """Where ``whole`` is nearest to ``piece``, if that is within ``near`` of its size, both as root mean squares.

    ``first``  is taken without a search if it is near enough.
    """
    if piece.ndim != whole.ndim or not piece.numel() or piece.dtype != whole.dtype:
        return None
    size = float(piece.double().square().mean().sqrt())

    def distance(place: Place) -> float:
        return float((taken(whole, place).double() - piece.double()).square().mean().sqrt())

    if first is not None and fits(piece, whole, first) and distance(first) <= near * size:
        return first
    dims = [tuple(_stretches(here, there)) for here, there in zip(piece.shape, whole.shape, strict=True)]
    places = list(itertools.islice(itertools.product(*dims), SEARCHED))
    best = min(places, key=distance, default=None)
    return best if best is not None and distance(best) <= near * size else None


def _lies(piece: torch.Tensor, whole: torch.Tensor, place: Place, apart: float) -> bool:
    there = taken(whole, place)
    return torch.equal(there, piece) or (apart > 0.0 and not bool((differences(there, piece) > apart).any()))


def _probes(piece: torch.Tensor) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """A few elements, with their indices: they refute nearly every wrong place."""
    count = piece.numel()
    flat = sorted({0, count - 1, count // 2, count // 3})
    indices = [tuple(int(at) for at in torch.unravel_index(torch.tensor(one), piece.shape)) for one in flat]
    return [(index, piece[index]) for index in indices]


def _near(one: torch.Tensor, other: torch.Tensor, apart: float) -> bool:
    if torch.equal(one, other):
        return True
    return apart > 0.0 and float(differences(one.reshape(1), other.reshape(1))) <= apart


def _index(place: Place, at: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_along_dim(stretches, one) for stretches, one in zip(place, at, strict=True))


def _along_dim(stretches: tuple[Stretch, ...], at: int) -> int:
    for start, length, step in stretches:
        if at < length:
            return start + at * step
        at -= length
    raise AssertionError(f"the stretches {stretches} have no element {at} more")


def _stretches(here: int, there: int) -> Iterator[tuple[Stretch, ...]]:
    """Which ``here`` of the ``there`` elements of a dim one rank may hold, the plainest first."""
    if here == there:
        yield ((0, here, 1),)
        return
    if here > there or here == 0:
        return
    seen = set()
    for start in (*range(0, there - here + 1, here), *range(there - here, -1, -here)):
        if start not in seen:
            seen.add(start)
            yield ((start, here, 1),)
    if there % here:
        return
    ranks = there // here
    yield from (((start, here, ranks),) for start in range(ranks))
    for parts in merged_parts(here):
        starts = [0, *itertools.accumulate(size * ranks for size in parts)]
        for rank in range(ranks):
            yield tuple((start + rank * size, size, 1) for start, size in zip(starts, parts, strict=False))
