"""Data that is shared out among the ranks: do some have the same piece or rows, while other rows nobody has?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shardwise.interop.running.recording import Key, Record

from ..distance.numbers import Against, ValueDisagreement


def repeated_piece(
    key: Key, first: Record, pieces: Mapping[int, torch.Tensor], whole: torch.Tensor
) -> ValueDisagreement | None:
    """Data, or a parameter, that is shared out so that some ranks have the same piece, and another piece nobody has."""
    for _, parts, held in _shared_out(pieces, whole):
        lost = sorted(set(range(len(parts))) - set(held.values()))
        twice = next((rank for rank in held if held[rank] in [held[other] for other in range(rank)]), None)
        if not lost or twice is None:
            continue
        other = next(rank for rank in held if held[rank] == held[twice])
        said = (
            f"is piece {held[twice]} of {len(parts)} of the run on one rank on rank {twice} as on rank {other}, "
            f"and no rank has piece {lost[0]}"
        )
        return ValueDisagreement(key, first.claim, Against.SHAPE, twice, (other, twice), (), (), None, said)
    return None


def _shared_out(
    pieces: Mapping[int, torch.Tensor], whole: torch.Tensor
) -> Iterator[tuple[int, Sequence[torch.Tensor], dict[int, int]]]:
    """Ways to share the whole out in which each rank has one of the parts: along which dim, the parts with that dim in
    front, and which of them each rank has.
    """
    piece = pieces[min(pieces)]
    if any(other.shape != piece.shape for other in pieces.values()) or piece.ndim != whole.ndim:
        return
    cut = [dim for dim in range(piece.ndim) if piece.shape[dim] != whole.shape[dim]]
    if len(cut) != 1 or not piece.shape[cut[0]] or whole.shape[cut[0]] % piece.shape[cut[0]]:
        return
    count = whole.shape[cut[0]] // piece.shape[cut[0]]
    moved = whole.movedim(cut[0], 0)
    for parts in (moved.chunk(count), [moved[at::count] for at in range(count)]):
        held = {rank: _position(own.movedim(cut[0], 0), parts) for rank, own in pieces.items()}
        places = {rank: place for rank, place in held.items() if place is not None}
        if len(places) == len(held):
            yield cut[0], parts, places


@dataclass(frozen=True)
class RepeatedData:
    """Data that several ranks have the same piece of: what is wrong, and by record the pieces that ranks could have."""

    wrong: ValueDisagreement
    pieces: dict[Key, Sequence[torch.Tensor]] = field(default_factory=dict)


def repeated_data(
    ranks: Sequence[Sequence[Record]], alone: Sequence[Record], mesh: Mapping[str, int]
) -> dict[Key, RepeatedData]:
    """What operations are given in such pieces, by the key without its number, in the order of the program."""
    found: dict[Key, RepeatedData] = {}
    runs = [{record.key: record for record in run} for run in ranks]
    for there in alone:
        records = {rank: run[there.key] for rank, run in enumerate(runs) if there.key in run}
        pieces = {rank: record.value for rank, record in records.items() if record.value is not None}
        if there.value is None or len(pieces) < len(runs):
            continue
        wrong = repeated_piece(there.key.source, records[0], pieces, there.value)
        own = _own_pieces(pieces, there.value, mesh) if wrong is not None else None
        if wrong is not None and own is not None:
            found.setdefault(there.key.source, RepeatedData(wrong)).pieces[there.key] = own
    return found


def _own_pieces(
    pieces: Mapping[int, torch.Tensor], whole: torch.Tensor, mesh: Mapping[str, int]
) -> list[torch.Tensor] | None:
    """The piece of each rank if the whole is shared out over an axis of the mesh that has as many ranks, or all."""
    for dim, parts, _ in _shared_out(pieces, whole):
        stride = math.prod(mesh.values())
        if len(parts) == stride:
            return [parts[rank].movedim(0, dim) for rank in range(stride)]
        for size in mesh.values():
            stride //= size
            if size == len(parts):
                return [parts[rank // stride % size].movedim(0, dim) for rank in range(math.prod(mesh.values()))]
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
