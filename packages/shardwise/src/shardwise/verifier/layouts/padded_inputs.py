"""Inputs that every rank pads to the longest of its own samples, and the run on one rank to the longest of all.

one rank   [[5, 1, 2], [3, 4, 0], [6, 0, 0], [7, 8, 0]]
two ranks  [[5, 1, 2], [3, 4, 0]] and [[6, 0], [7, 8]], which with one more column of 0 is the rest
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import torch

from .samples import padded_samples

_MOST = 4
"""How many of the values that end a dim are tried as what it is filled with, the most frequent first."""


def are_padded(
    pieces: Mapping[int, torch.Tensor], whole: torch.Tensor, lies: Callable[[Mapping[int, torch.Tensor]], bool]
) -> bool:
    """Are the pieces, by rank, what one rank has, once they are as long, or but for what was cut off of a last column?

    ``lies``  says whether pieces as long as ``whole`` are it in some layout.
    """
    if any(lies(longer) for longer in lengthened(pieces, whole)):
        return True
    return padded_samples([[piece] for piece in pieces.values()], [whole])


def lengthened(pieces: Mapping[int, torch.Tensor], whole: torch.Tensor) -> Iterator[dict[int, torch.Tensor]]:
    """The pieces, by rank, made as long as ``whole`` in all dims but one, filled with a value that ends those."""
    if any(piece.ndim != whole.ndim for piece in pieces.values()):
        return
    for samples in range(whole.ndim):
        short = [
            dim
            for dim in range(whole.ndim)
            if dim != samples and any(piece.shape[dim] < whole.shape[dim] for piece in pieces.values())
        ]
        if not short:
            continue
        ends = torch.cat([whole.select(dim, -1).flatten() for dim in short])
        for fill, _ in Counter(ends.tolist()).most_common(_MOST):
            yield {rank: _filled(piece, samples, whole, fill) for rank, piece in pieces.items()}


def _filled(piece: torch.Tensor, samples: int, whole: torch.Tensor, fill: float) -> torch.Tensor:
    shape = [max(own, all) for own, all in zip(piece.shape, whole.shape, strict=True)]
    shape[samples] = piece.shape[samples]
    longer = piece.new_full(shape, fill)
    longer[tuple(map(slice, piece.shape))] = piece
    return longer
