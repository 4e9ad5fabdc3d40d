"""Data that is shared out among the ranks: do some have the same piece or rows, while other rows nobody has?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch

from shardwise.interop.running.recording import Key, Record

from ..distance.numbers import Against, ValueDisagreement


def repeated_piece(
    key: Key, first: Record, pieces: Mapping[int, torch.Tensor], whole: torch.Tensor
) -> ValueDisagreement | None:
    """Data that is shared out so that some ranks have the same piece, and another piece nobody has."""
    piece = pieces[min(pieces)]
    if any(other.shape != piece.shape for other in pieces.values()) or piece.ndim != whole.ndim:
        return None
    cut = [dim for dim in range(piece.ndim) if piece.shape[dim] != whole.shape[dim]]
    if len(cut) != 1 or not piece.shape[cut[0]] or whole.shape[cut[0]] % piece.shape[cut[0]]:
        return None
    count = whole.shape[cut[0]] // piece.shape[cut[0]]
    moved = whole.movedim(cut[0], 0)
    for parts in (moved.chunk(count), [moved[at::count] for at in range(count)]):
        held = {rank: _position(own.movedim(cut[0], 0), parts) for rank, own in pieces.items()}
        lost = sorted(set(range(count)) - set(held.values()))
        twice = next((rank for rank in held if held[rank] in [held[other] for other in range(rank)]), None)
        if None in held.values() or not lost or twice is None:
            continue
        other = next(rank for rank in held if held[rank] == held[twice])
        said = (
            f"is piece {held[twice]} of {count} of the run on one rank on rank {twice} as on rank {other}, "
            f"and no rank has piece {lost[0]}"
        )
        return ValueDisagreement(key, first.claim, Against.SHAPE, twice, (other, twice), (), (), None, said)
    return None


def _position(piece: torch.Tensor, parts: Sequence[torch.Tensor]) -> int | None:
    """Which of the parts it is, if it is one."""
    return next((at for at, part in enumerate(parts) if torch.equal(part, piece)), None)


def overlapping_pieces(
    key: Key, first: Record, pieces: Mapping[int, torch.Tensor], whole: torch.Tensor
) -> ValueDisagreement | None:
    """Data that is shared out in pieces that overlap, ``x[rank : rank + n]``, so that some of it nobody has.

    Pieces that overlap and together are the whole are no mistake: halos are so.
    """
    for dim in range(whole.ndim):
        sizes = {own.movedim(dim, 0).shape[1:] for own in pieces.values() if own.ndim == whole.ndim}
        rows = whole.movedim(dim, 0)
        if sizes != {rows.shape[1:]} or any(own.ndim != whole.ndim for own in pieces.values()):
            continue
        held = {rank: _rows(own.movedim(dim, 0), rows) for rank, own in pieces.items()}
        spans = {span: rank for rank, span in reversed(held.items()) if span is not None}
        lost = next((row for row in range(len(rows)) if not any(row in span for span in spans)), None)
        if None in held.values() or lost is None:
            continue
        for one, other in itertools.combinations(sorted(spans, key=lambda span: (span.start, span.stop)), 2):
            if other.start < one.stop:
                ranks = tuple(sorted((spans[one], spans[other])))
                both = f"ranks {ranks[0]} and {ranks[1]} both have row {other.start}"
                said = f"is cut so that {both} of the run on one rank (dim {dim}), and no rank has row {lost}"
                return ValueDisagreement(key, first.claim, Against.SHAPE, ranks[1], ranks, (), (), None, said)
    return None


def _rows(piece: torch.Tensor, whole: torch.Tensor) -> range | None:
    """Which rows of ``whole`` the piece is; None if it is none, or it may be several."""
    length, last = len(piece), len(whole) - len(piece) + 1
    if length < 2 or last < 2 or not piece.numel():
        return None
    starts = (whole[:last] == piece[0]).reshape(last, -1).all(1).nonzero()[:, 0].tolist()
    found = [start for start in starts if torch.equal(whole[start : start + length], piece)]
    return range(found[0], found[0] + length) if len(found) == 1 else None
