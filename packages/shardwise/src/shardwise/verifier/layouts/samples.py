"""Samples of a step as rows, on whatever rank, in whatever order and with whatever padding they are.

one rank   [[5, 1, 2], [3, 4, 0], [6, 0, 0], [7, 8, 0]]
two ranks  [[6], [3]] and [[5, 1, 2], [7, 8, 0]]: what is fed to a decoder ends before the last token, so 4 is cut off
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

LARGEST = 1 << 20
"""Elements of a step beyond which samples are not sorted out."""
FILLS = 4
"""How many of the values that end a dim are tried as what it is filled with, the most frequent first."""
Row = tuple[object, ...]


def same_samples(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    """Are the rows of all ranks, of one tensor or several, those of the one? Ranks that hold the same are replicas."""
    if not _are_few([*ranks, alone]):
        return False
    own, whole = _distinct(ranks), list(_rows(alone))
    return Counter(own) == Counter(whole) or _are_padded(own, whole)


def padded_samples(ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> bool:
    """Are they, where each pads its rows to the longest of its own, and some are therefore not as long?"""
    return _are_few([*ranks, alone]) and _are_padded(_distinct(ranks), list(_rows(alone)))


def _are_few(runs: Sequence[Sequence[torch.Tensor]]) -> bool:
    tensors = [tensor for values in runs for tensor in values]
    return all(tensor.ndim for tensor in tensors) and sum(tensor.numel() for tensor in tensors) <= LARGEST


def _distinct(ranks: Sequence[Sequence[torch.Tensor]]) -> list[Row]:
    found = dict.fromkeys(tuple(_rows(values)) for values in ranks)
    return [row for rows in found for row in rows]


def _rows(tensors: Sequence[torch.Tensor]) -> Iterator[Row]:
    """Each row with its shape, which flat numbers no longer show; of more dims than one as a sequence of its parts."""
    for tensor in tensors:
        inner = tuple(tensor.shape[2:])
        if tensor.ndim == 1:
            yield from ((inner, number) for number in tensor.tolist())
            continue
        parts = tensor.flatten(2).tolist() if inner else tensor.tolist()
        for row in parts:
            yield (inner, *(tuple(part) if inner else part for part in row))


def _are_padded(own: Sequence[Row], whole: Sequence[Row]) -> bool:
    """Does every row begin its partner, or go on behind it? The longest of all is as long here and there, so nothing is
    cut off everywhere.
    """
    lengths, others = {len(row) for row in own}, {len(row) for row in whole}
    if len(own) != len(whole) or len(lengths | others) == 1 or max(lengths) != max(others):
        return False
    fills = [fill for fill, _ in Counter(row[-1] for row in whole).most_common(FILLS)]
    return any(_are_partners(own, whole, fill) for fill in fills)


def _are_partners(own: Sequence[Row], whole: Sequence[Row], fill: object) -> bool:
    """Once both are in the order of what they hold without ``fill``."""
    pairs = zip(*(sorted(rows, key=lambda row: _unfilled(row, fill)) for rows in (own, whole)), strict=True)
    return all(one[: len(other)] == other[: len(one)] for one, other in pairs)


def _unfilled(row: Row, fill: object) -> Row:
    length = len(row)
    while length > 1 and row[length - 1] == fill:
        length -= 1
    return row[:length]
