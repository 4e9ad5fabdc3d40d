"""The initial weights of the ranks put together, where they are not those that one rank draws.

Stages of a pipeline are seeded by their number, and ranks of tensor parallelism draw their own shards: then no layout
makes the ranks' weights those of one rank. One rank can be given them:

    tp=2, [2, 8] on each rank and [4, 8] on one      the rows of rank 0, then those of rank 1
    a stage has [8, 8], and one rank too             as they are

A shard that several ranks have alike stays what it is, and so do weights of another size than one rank draws: ranks
that are seeded alike, or scale by a size of their own, are a mistake that nothing would tell of any more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from shardwise.interop.running.recording import Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.reassemble import Grid, Unreadable, fold
from shardwise.types.tensor_type import TensorType

from ..records.record import RankRun
from .alignment import is_constant, is_equal_along, items_of, varying

Named = dict[str, Record]
APART = 0.25
"""By how much weights may be larger or smaller than those that one rank draws, root mean squares; and for few elements
by this many times the spread of such a mean:"""
SPREADS = 3.0


@dataclass(frozen=True)
class InitialWeights:
    """``values`` for one rank, by name. ``certain``: none is put together of shards by their sizes alone."""

    values: Mapping[str, torch.Tensor]
    certain: bool


def put_together(ranks: Sequence[RankRun], alone: RankRun, mesh: Mapping[str, int]) -> InitialWeights | None:
    """The initial weights of the ranks as one rank's; None where they are its own, or nothing says how they lie."""
    grid, own, there = Grid.of(mesh), [_records(run) for run in ranks], _records(alone)
    held = _numbered_as_one(own, there, grid)
    if {name for records in held for name in records} != there.keys():
        return None
    values, certain, drawn = {}, held is own, False
    for name, record in there.items():
        pieces = {rank: records[name] for rank, records in enumerate(held) if name in records}
        tensors = {rank: piece.value for rank, piece in pieces.items() if piece.value is not None}
        whole = record.value
        if whole is None or len(tensors) < len(pieces):
            return None
        value = _typed(tensors, pieces[min(pieces)].type)
        if value is None:
            value = _cut(tensors, varying(grid, tuple(tensors)), whole.shape)
            certain &= value is None or tensors[min(tensors)].shape == whole.shape or is_constant(value)
        if value is None or value.shape != whole.shape or value.dtype != whole.dtype or not _is_as_large(value, whole):
            return None
        values[name] = value
        drawn |= not torch.equal(value, whole)
    return InitialWeights(values, certain) if drawn else None


def _records(run: RankRun) -> Named:
    found: Named = {}
    for entry in run.entries:
        if isinstance(entry, Record) and entry.key.kind == "parameter":
            found.setdefault(entry.key.name, entry)
    return found


def _numbered_as_one(held: list[Named], there: Named, grid: Grid) -> list[Named]:
    """``held`` with the numbers that one rank has: layers of a stage, and experts, which ranks number from 0, come
    behind those of the ranks before, along the axis over which they are dealt out.
    """
    for path in sorted({tuple(parts[:at]) for parts in map(_parts, there) for at in _numbers(parts)}, key=len):
        whole, items = len(items_of(there, path)), [items_of(records, path) for records in held]
        counts = list(map(len, items))
        if len(set().union(*items)) >= whole:
            continue
        fibers = {axis: _fibers(axis, len(held)) for axis in grid.axes.values()}
        dealt = (
            fiber for fiber in fibers.values() if all(sum(counts[rank] for rank in one) in (0, whole) for one in fiber)
        )
        found = next(dealt, None)
        if found is None:
            return held
        before = {rank: sum(counts[other] for other in one if other < rank) for one in found for rank in one}
        held = [
            {_moved(name, path, before[rank]): record for name, record in records.items()}
            for rank, records in enumerate(held)
        ]
    return held


def _parts(name: str) -> list[str]:
    return name.split(".")


def _numbers(parts: Sequence[str]) -> list[int]:
    return [at for at, part in enumerate(parts) if part.isdigit()]


def _fibers(axis: MeshAxis, count: int) -> list[list[int]]:
    fibers: dict[int, list[int]] = {}
    for rank in range(count):
        fibers.setdefault(rank - axis.layout.offset(rank), []).append(rank)
    return list(fibers.values())


def _moved(name: str, path: tuple[str, ...], by: int) -> str:
    parts, at = _parts(name), len(path)
    if tuple(parts[:at]) != path or at >= len(parts) or not parts[at].isdigit():
        return name
    return ".".join([*path, str(int(parts[at]) + by), *parts[at + 1 :]])


def _typed(pieces: Mapping[int, torch.Tensor], type: TensorType) -> torch.Tensor | None:
    """The value that its type says; None if that leaves anything open."""
    if not type.axes:
        return None
    try:
        values = fold(pieces, type)
    except Unreadable:
        return None
    return next(iter(values.values())) if len(values) == 1 else None


def _cut(pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], shape: torch.Size) -> torch.Tensor | None:
    """``pieces`` that are equal along all axes but one, which cuts the dim in which they are smaller than ``shape``."""
    first = pieces[min(pieces)]
    if math.prod(axis.size() for axis in axes) != len(pieces) or first.ndim != len(shape):
        return None
    if first.numel() and all(bool((piece == first.flatten()[0]).all()) for piece in pieces.values()):
        return first.flatten()[0].expand(shape).clone()
    cut = [axis for axis in axes if not is_equal_along(pieces, axis)]
    dims = [dim for dim in range(first.ndim) if first.shape[dim] != shape[dim]]
    if not cut and not dims:
        return first
    if len(cut) != 1 or len(dims) != 1:
        return None
    fiber = [pieces[rank] for rank in sorted(pieces) if rank - cut[0].layout.offset(rank) == min(pieces)]
    if any(torch.equal(one, other) for at, one in enumerate(fiber) for other in fiber[:at]):
        return None
    try:
        return torch.cat(fiber, dims[0])
    except RuntimeError:  # they fit together in no dim
        return None


def _is_as_large(value: torch.Tensor, whole: torch.Tensor) -> bool:
    """Can both be drawn from one distribution, as far as their size goes?"""
    if not value.is_floating_point() or is_constant(value) or is_constant(whole):
        return torch.equal(value, whole) or not (is_constant(value) or is_constant(whole))
    ratio = math.sqrt(float(value.double().square().mean()) / float(whole.double().square().mean()))
    return abs(math.log(ratio)) <= max(APART, SPREADS / math.sqrt(value.numel()))
