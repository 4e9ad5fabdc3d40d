"""Tensors of which every rank has some elements, put together on the ranks that hold the same parameter.

both ranks of dp=2 hold a weight of 6 elements; rank 0 has elements 0 to 4 of its gradient, rank 1 has 4 to 6
together, on either rank: 6 elements
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.mesh.axis import MeshAxis

from ..distance.difference import difference
from ..distance.numbers import Against, NotCompared, ValueDisagreement
from .alignment import AlignedParameter


def put_together(
    key: Key, records: Mapping[int, Record], group: AlignedParameter
) -> dict[int, torch.Tensor] | ValueDisagreement | NotCompared:
    """What each rank of ``group`` has together with those that hold the same; or what is wrong, or missing."""
    axes = group.equal_axes()
    alike: dict[int, dict[int, Record]] = {}
    for rank in group.ranks:
        having = alike.setdefault(_first_alike(rank, axes), {})
        if rank in records:
            having[rank] = records[rank]
    wholes: dict[int, torch.Tensor] = {}
    for first, having in alike.items():
        whole = (
            _filled(key, having) if having else NotCompared(key, "", f"no rank that holds what {first} does has any")
        )
        if not isinstance(whole, torch.Tensor):
            return whole
        wholes[first] = whole
    return {rank: wholes[_first_alike(rank, axes)] for rank in group.ranks}


def with_those_alike(pieces: Mapping[int, torch.Tensor], group: AlignedParameter) -> dict[int, torch.Tensor]:
    """What the ranks of ``group`` have, and where one has nothing, what one has that holds the same.

    An optimizer that shares out its work has the gradient on the ranks that need it.
    """
    axes = group.equal_axes()
    of_alike: dict[int, torch.Tensor] = {}
    for rank in sorted(set(pieces) & set(group.ranks)):
        of_alike.setdefault(_first_alike(rank, axes), pieces[rank])
    found = {rank: pieces.get(rank, of_alike.get(_first_alike(rank, axes))) for rank in group.ranks}
    return {rank: value for rank, value in found.items() if value is not None}


def _first_alike(rank: int, axes: Sequence[MeshAxis]) -> int:
    for axis in axes:
        rank -= axis.layout.offset(rank)
    return rank


def _filled(key: Key, records: Mapping[int, Record]) -> torch.Tensor | ValueDisagreement | NotCompared:
    first = next(record for record in records.values() if record.held is not None or record.value is not None)
    assert first.value is not None, "what is compared has a value"
    shape = tuple(first.value.shape) if first.held is None else first.held.shape
    whole = torch.zeros(math.prod(shape), dtype=first.value.dtype)
    owners = torch.full(whole.shape, -1)
    for rank, record in records.items():
        assert record.value is not None, "what is compared has a value"
        value, at = record.value.flatten(), 0
        for start, stop in ((0, len(whole)),) if record.held is None else record.held.ranges:
            part, at = value[at : at + stop - start], at + stop - start
            known = owners[start:stop] >= 0
            if difference(part[known], whole[start:stop][known], 0.0) is not None:
                others = sorted({int(owner) for owner in owners[start:stop][known]})
                said = f"lies in parts that meet, but rank {rank} has other values there than rank {others[0]}"
                return ValueDisagreement(key, first.claim, Against.RANKS, rank, (others[0], rank), (), (), None, said)
            whole[start:stop], owners[start:stop] = part, rank
    missing = (owners < 0).nonzero()
    if len(missing):
        return NotCompared(key, first.claim, f"no rank has element {int(missing[0])} of it flattened")
    return whole.view(shape)
