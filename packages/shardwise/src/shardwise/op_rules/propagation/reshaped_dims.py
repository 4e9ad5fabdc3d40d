"""The dims of a tensor after a reshape, from its shape before and the sizes asked for; pure.

Sizes are one rank's; the program scales them, so the question is which dim of the result grows with a sharded dim. Dims
are lined up by the products of their sizes: each smallest run of dims that becomes a run of dims is a group, and inside
a group only the outermost dim keeps its shards in one piece: ``(a b) -> ab`` and ``ab -> (a b)`` keep ``a``, and shards
of ``b`` would interleave. Dims of size 1 stand in the gaps between groups, where a ``-1`` says which one grows, or a
size that is known to be this rank's share of the one on one device.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import prod

INTERLEAVES = "merged behind another dim, its shards would interleave"
INSIDE = "the size that is this rank's share of it is not the outermost: its shards would interleave"
VANISHES = "its size on this rank is 1, so nobody can tell whether it was dropped or merged into a neighbour"
AMBIGUOUS = "its size on this rank is 1, and the result has another number of such dims: nobody can tell which it is"


@dataclass(frozen=True, slots=True)
class Reshaped:
    """What became of the dims.

    ``target``  dim before -> dim after, for dims that may be sharded; ``why`` says of the others why they may not.
    ``even``    dims that are split into a given number of parts: shards of another size have parts of another size.
    ``grouped`` dims that are split into parts of a given size.
    """

    ndim: int
    target: dict[int, int] = field(default_factory=dict)
    why: dict[int, str] = field(default_factory=dict)
    even: set[int] = field(default_factory=set)
    grouped: set[int] = field(default_factory=set)


def reshape(shape: Sequence[int], sizes: Sequence[int], shared: Collection[int] = ()) -> Reshaped | None:
    """How ``shape`` becomes ``sizes``, one of which may be -1; None if nobody can tell.

    ``shared``  the sizes, by place, that grow with the sharded dim: no other dim is what that becomes.
    """
    before = _countable(shape)
    after = _resolved(before, _countable(sizes))
    groups = None if after is None else _groups(before, after)
    if groups is None:
        return None
    found = Reshaped(len(sizes))
    free = sizes.index(-1) if -1 in sizes else None
    free = next(iter(shared)) if len(shared) == 1 else free
    split: list[int] = []
    for gap, group in groups:
        if not set(shared).isdisjoint(gap[1]):  # of size 1 here: part of the next dim, or of one split in front of it
            _lose(found, split)
        _match_ones(found, gap, group, free)
        _match_group(found, gap, group, free, shared)
        split = group[0][:1]
    return found


def _resolved(shape: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """``sizes`` without the -1; None if that cannot be."""
    known = prod(size for size in sizes if size != -1)
    if -1 not in sizes:
        return list(sizes) if known == prod(shape) else None
    if sizes.count(-1) > 1 or known == 0 or prod(shape) % known:
        return None
    return [prod(shape) // known if size == -1 else size for size in sizes]


_EMPTY = 2**61 - 1
"""Stands for the size 0, so that products tell; a prime, which no other size has as a factor."""

Run = tuple[list[int], list[int]]
"""Dims before and the dims after that they become."""


def _countable(shape: Sequence[int]) -> list[int]:
    return [size or _EMPTY for size in shape]


def _groups(before: list[int], after: list[int]) -> list[tuple[Run, Run]] | None:
    """Pairs of a gap (dims of size 1) and the group that follows it; the last group is empty. None: no match."""
    if prod(before) != prod(after):
        return None
    found: list[tuple[Run, Run]] = []
    i = j = 0
    while True:
        gap = _ones(before, i), _ones(after, j)
        i, j = i + len(gap[0]), j + len(gap[1])
        if i == len(before) or j == len(after):
            return [*found, (gap, ([], []))]
        start = i, j
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        found.append((gap, (list(range(start[0], i)), list(range(start[1], j)))))


def _ones(shape: list[int], start: int) -> list[int]:
    """The dims of size 1 that follow each other from ``start``."""
    return [dim for dim, _ in itertools.takewhile(lambda each: each[1] == 1, enumerate(shape[start:], start))]


def _match_ones(found: Reshaped, gap: Run, group: Run, free: int | None) -> None:
    """Dims of size 1: one by one, or all into what grows, which may be the next group's outermost dim."""
    before, after = gap
    if len(before) == len(after):
        found.target.update(zip(before, after, strict=True))
    elif free is not None and (free in after or (not after and group[1][:1] == [free])):
        found.target.update(dict.fromkeys(before, free))
    else:
        found.why.update(dict.fromkeys(before, AMBIGUOUS if after else VANISHES))


def _match_group(found: Reshaped, gap: Run, group: Run, free: int | None, shared: Collection[int]) -> None:
    """The outermost dim stays outermost; what grows, where it has size 1 and stands in front of the group, is it."""
    before, after = group
    if not before:
        return
    grows = free if free is not None and free in gap[1] and not gap[0] else after[0]
    found.target[before[0]] = grows
    if len(after) > 1 or grows != after[0]:
        (found.grouped if grows == free and not shared else found.even).add(before[0])
    if grows not in shared and not set(shared).isdisjoint(after):
        _lose(found, before[:1])
    found.why.update(dict.fromkeys(before[1:], INTERLEAVES))


def _lose(found: Reshaped, dims: Sequence[int]) -> None:
    """These become a dim of which the share stands behind another one."""
    for dim in dims:
        found.target.pop(dim, None)
        found.why[dim] = INSIDE


@dataclass(frozen=True, slots=True)
class DimMerge:
    """Dims of these ``sizes``, one rank's, that have become one; of them dim ``at`` is sharded, and not the outermost.

    Example: of [2, 8@cp, 4] the view [16, 4] has on every rank the rows of both samples, and together these stand in
    another order than in the view of the whole.
    """

    sizes: tuple[int, ...]
    at: int


def merge_of(shape: Sequence[int], after: Sequence[int], dim: int) -> tuple[DimMerge, int] | None:
    """Which dims ``dim`` was merged with, and the dim that they became; None if it is not merged behind others."""
    for before, became in _regroupings(shape, after):
        if dim in before[1:] and len(became) == 1:
            return DimMerge(tuple(shape[one] for one in before), before.index(dim)), became[0]
    return None


def is_split(shape: Sequence[int], after: Sequence[int], dim: int) -> bool:
    """True if ``dim`` alone, or with dims behind it, became several; or if nobody can tell."""
    groups = _regroupings(shape, after)
    return not groups or any(dim in before and len(became) > 1 for before, became in groups)


def split_of(shape: Sequence[int], after: Sequence[int], dim: int, merge: DimMerge) -> int | None:
    """The dim of the result along which the shards lie one after the other again; None if there is none.

    The outer sizes of the merge stand before it: [16, 4] as [2, 8, 4] or [2, 4, 2, 4], for a merge of [2, 8@cp].
    """
    outer = prod(merge.sizes[: merge.at])
    for before, became in _regroupings(shape, after):
        if before == [dim]:
            sizes = itertools.accumulate((after[one] for one in became), operator.mul, initial=1)
            fitting = [one for one, size in zip(became, sizes, strict=False) if size == outer]
            return next((one for one in fitting if after[one] > 1), fitting[0] if fitting else None)
    return None


def _regroupings(shape: Sequence[int], after: Sequence[int]) -> list[Run]:
    groups = _groups(_countable(shape), _countable(after))
    return [group for _, group in groups or () if group[0]]
