"""Batches of DataLoaders: what each rank has drawn, and the global batches that all ranks have drawn together.

rank 0 draws rows 0 to 3, rank 1 rows 7 to 10        the one rank gets rows 0 to 3 and 7 to 10 as one batch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.torch_compat import tree_leaves, tree_map

Epoch = tuple[int, int]
"""The number of a DataLoader in the order of first use, and how often it had been iterated before."""


@dataclass(frozen=True)
class SharedOrder:
    """In which order a DistributedSampler shares out samples.

    ``place``     which share this rank takes.
    ``settings``  of the sampler, by name, that have to be alike on all ranks.
    ``data``      a digest of the data set; empty if that is not known.
    """

    place: int
    settings: tuple[tuple[str, object], ...]
    data: bytes
    location: SourceLocation | None

    @property
    def how(self) -> tuple[object, ...]:
        """What has to be alike on all ranks."""
        return self.settings, self.data


@dataclass
class Batches:
    """What the DataLoaders of a rank have given.

    ``drawn``    the batches of every epoch, as far as they were asked for.
    ``lengths``  ``len()`` of the loaders that were asked, by number.
    ``orders``   by epoch how a DistributedSampler has shared it out.
    ``iterated`` there was a DataLoader that gave batches, whether or not they were kept.
    ``partial``  there were more than is kept, and none is.
    """

    drawn: dict[Epoch, list[Any]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    orders: dict[Epoch, SharedOrder] = field(default_factory=dict)
    iterated: bool = False
    partial: bool = False


def merged(ranks: Sequence[Batches]) -> Batches:
    """The global batches: the ranks' batches one behind the other, those of ranks that have the same one only once.

    A rank that draws fewer than others, or none, has no part in the last ones.

    Errors: SW905 for ranks whose batches do not fit together.
    """
    whole = Batches()
    for rank in ranks:
        for number, length in rank.lengths.items():
            whole.lengths[number] = max(length, whole.lengths.get(number, 0))
    for epoch in dict.fromkeys(epoch for rank in ranks for epoch in rank.drawn):
        drawn = [rank.drawn.get(epoch, []) for rank in ranks]
        whole.drawn[epoch] = [
            _together(epoch, [batches[at] for batches in drawn if at < len(batches)])
            for at in range(max(map(len, drawn)))
        ]
    return whole


def is_shared(ranks: Sequence[Batches]) -> bool:
    """Have all ranks drawn the same batches?"""
    first, *others = ranks
    return bool(first.drawn) and all(
        len(rank.drawn.get(epoch, ())) == len(own) and all(map(_equal, own, rank.drawn[epoch]))
        for rank in others
        for epoch, own in first.drawn.items()
    )


def orders_apart(ranks: Sequence[Batches]) -> tuple[int, SharedOrder, str] | None:
    """The first rank that shares out the samples of an epoch otherwise than rank 0, with how it does, in words.

    Ranks that take the same share and differ belong to groups that each have data of their own, which is nothing wrong.
    """
    for epoch, ours in ranks[0].orders.items():
        orders = [run.orders.get(epoch) for run in ranks]
        of_place: dict[int, SharedOrder] = {}
        if any(one is None or one.how != of_place.setdefault(one.place, one).how for one in orders):
            continue
        for rank, theirs in enumerate(orders):
            if theirs is not None and (how := _apart(rank, ours, theirs)):
                return rank, theirs, how
    return None


def _apart(rank: int, ours: SharedOrder, theirs: SharedOrder) -> str:
    own, other = dict(ours.settings), dict(theirs.settings)
    if own["num_replicas"] != other["num_replicas"]:
        return ""  # two groups of unequal size
    names = [name for name in own if own[name] != other[name] and (own["shuffle"] or name not in _DRAWN)]
    if names:
        said = ", ".join(f"{name} {other[name]} on rank {rank}, {own[name]} on rank 0" for name in names)
        return f"in another order than on rank 0 ({said})"
    return "of a data set that is not that of rank 0" if ours.data and theirs.data and ours.data != theirs.data else ""


_DRAWN = ("seed", "epoch")
"""What matters where the order is drawn."""


def _together(epoch: Epoch, batches: Sequence[object]) -> object:
    distinct: list[Any] = []
    for batch in batches:
        if not any(_equal(batch, other) for other in distinct):
            distinct.append(batch)
    leaves = [tree_leaves(batch) for batch in distinct]
    if len({len(of_one) for of_one in leaves}) > 1:
        raise _unfit(epoch, "the ranks' batches are not built alike")
    parts = iter(zip(*leaves, strict=True))
    try:
        return tree_map(lambda leaf: _concatenated(next(parts)), distinct[0])
    except RuntimeError as error:
        raise _unfit(epoch, str(error).partition("\n")[0]) from None


def _concatenated(parts: Sequence[Any]) -> object:
    """Tensors one behind the other along their first dim; of all else, what the first rank has."""
    first = parts[0]
    return torch.cat(list(parts)) if isinstance(first, torch.Tensor) and first.ndim else first


def _equal(one: object, other: object) -> bool:
    ours, theirs = tree_leaves(one), tree_leaves(other)
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and torch.equal(one, other)
    return bool(one == other)


def _unfit(epoch: Epoch, why: str) -> SpmdValueError:
    return SpmdValueError(
        f"the batches of DataLoader number {epoch[0] + 1} make no global batch: {why}",
        code="SW905",
        help=("verify --no-feed, and give every rank its share of one batch",),
    )
