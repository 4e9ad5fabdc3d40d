"""Sizes that a call is given: whether they fit one rank's shard, as they must, or the whole tensor.

``x.view(8, 16, 4, 32)`` is written with the sizes of the whole by somebody who thinks of one device. On a rank torch
refuses it, in words that know nothing of shards.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import prod

from ..vocabulary.labellers import listed, wrapped
from .dim_labels import Call


class Fit(enum.Enum):
    """What the sizes fit."""

    SHARD = "shard"
    WHOLE = "whole"
    """The whole tensor, and not the shard."""
    NEITHER = "neither"
    """Nothing: the call fails on one device too."""


_VIEWS = ("view", "reshape")
_STRETCHES = ("expand",)
_SPLITS = ("unflatten",)


SIZED = frozenset((*_VIEWS, *_STRETCHES, *_SPLITS))
"""Operators that are given sizes."""


def fit(op: str, call: Call, whole: Sequence[int]) -> Fit:
    """What the sizes of this call fit, ``whole`` being the first operand's shape on all ranks together."""
    sizes = listed(call, "sizes") if op in _SPLITS else listed(call, "shape", "size")
    if op not in SIZED or not sizes:  # a view as another dtype has none
        return Fit.SHARD
    shard: Sequence[int] = call.first.shape
    if op in _SPLITS:
        dim = wrapped(call.get("dim", 0), len(shard))
        shard, whole = shard[dim : dim + 1], whole[dim : dim + 1]
    fits = _stretches if op in _STRETCHES else _regroups
    return Fit.SHARD if fits(shard, sizes) else Fit.WHOLE if fits(whole, sizes) else Fit.NEITHER


def _regroups(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    known = prod(size for size in sizes if size != -1)
    if -1 not in sizes:
        return known == prod(shape)
    return sizes.count(-1) == 1 and known != 0 and prod(shape) % known == 0


def _stretches(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    added = len(sizes) - len(shape)
    return added >= 0 and all(have in (1, size) or size == -1 for have, size in zip(shape, sizes[added:], strict=True))
