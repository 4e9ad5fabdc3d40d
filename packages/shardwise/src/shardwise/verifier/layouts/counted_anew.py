"""Inputs that say where the documents of packed sequences are: every rank counts its own from 0.

one rank   cu_seqlens [0, 3, 5, 9, 12]          document_ids [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3]
two ranks  cu_seqlens [0, 3, 5] and [0, 4, 7]   document_ids [0, 0, 0, 1, 1] and [0, 0, 0, 0, 1, 1, 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.reassemble import Unreadable, collapse


def counted_anew(pieces: Mapping[int, torch.Tensor], axes: Sequence[MeshAxis], whole: torch.Tensor) -> bool:
    """Are the pieces, by rank, parts of ``whole`` along one axis, but for where each begins to count?"""
    integers = not whole.is_floating_point() and not whole.is_complex() and whole.dtype != torch.bool
    if not integers or whole.ndim != 1 or any(piece.ndim != 1 or len(piece) < 2 for piece in pieces.values()):
        return False
    return any(
        _are_offsets(parts, whole) or _are_shifted(parts, whole)
        for axis in axes
        for parts in _along(pieces, axis, [other for other in axes if other is not axis])
    )


def _along(
    pieces: Mapping[int, torch.Tensor], axis: MeshAxis, others: Sequence[MeshAxis]
) -> Iterator[list[torch.Tensor]]:
    """The pieces in the order of ``axis``, if those along the others are equal."""
    values = dict(pieces)
    try:
        for other in others:
            values = collapse(values, other, _equal)
    except Unreadable:
        return
    if len(values) == axis.size():
        yield [values[rank] for rank in sorted(values)]


def _equal(parts: Mapping[int, torch.Tensor]) -> torch.Tensor:
    first, *rest = parts.values()
    if not all(torch.equal(first, other) for other in rest):
        raise Unreadable("the ranks' tensors differ")
    return first


def _are_offsets(parts: Sequence[torch.Tensor], whole: torch.Tensor) -> bool:
    """Sums of lengths so far, from 0 on every rank."""
    if any(int(part[0]) or bool((part.diff() < 0).any()) for part in (*parts, whole)):
        return False
    return torch.equal(torch.cat([part.diff() for part in parts]), whole.diff())


def _are_shifted(parts: Sequence[torch.Tensor], whole: torch.Tensor) -> bool:
    """Numbers of documents: those of a later rank are as much lower as there are documents before."""
    if sum(map(len, parts)) != len(whole):
        return False
    shifts = [
        there - part for part, there in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True)
    ]
    first = [int(shift[0]) for shift in shifts]
    return all(bool((shift == shift[0]).all()) for shift in shifts) and first[0] == 0 and first == sorted(first)
