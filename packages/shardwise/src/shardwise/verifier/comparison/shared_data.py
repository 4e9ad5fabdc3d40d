"""Data that is shared out among the ranks: do some have the same piece, while another piece nobody has?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from shardwise.interop.running.recording import Key, Record

from .numbers import Against, ValueDisagreement


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
