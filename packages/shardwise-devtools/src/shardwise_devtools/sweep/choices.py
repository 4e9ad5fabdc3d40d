"""Which placements of a call's operands does the sweep try? All of them, or a telling selection where they are many."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import torch

from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, R, Shard, V

Choice = tuple[PerMeshAxisSpmdType, ...]


def global_choices(tensors: Sequence[torch.Tensor], limit: int, rng: random.Random) -> list[Choice]:
    """Choices of R, S(i) and P with something that is not R: up to ``limit``, the likelier truths first."""
    options = [_options(tensor) for tensor in tensors]
    whole = tuple([R] * len(tensors))
    if math.prod(map(len, options)) <= limit:
        return [choice for choice in itertools.product(*options) if choice != whole]
    chosen = dict.fromkeys(itertools.islice(_telling(tensors, options), limit * 3 // 4))
    for _ in range(limit * 4):  # the rest by chance, because a lie may hide anywhere
        if len(chosen) >= limit:
            break
        chosen[tuple(rng.choice(option) for option in options)] = None
    chosen.pop(whole, None)
    return list(chosen)


def _options(tensor: torch.Tensor) -> list[PerMeshAxisSpmdType]:
    shards: list[PerMeshAxisSpmdType] = [Shard(dim) for dim, extent in enumerate(tensor.shape) if extent > 1]
    return [R, *shards, *([P] if tensor.is_floating_point() or tensor.is_complex() else [])]


def _telling(tensors: Sequence[torch.Tensor], options: Sequence[list[PerMeshAxisSpmdType]]) -> Iterator[Choice]:
    """Dims of one size cut together, in all tensors or in two; one operand alone; everything pending."""
    ndim = max(tensor.ndim for tensor in tensors)
    whole: Choice = tuple([R] * len(tensors))
    for front in range(ndim):
        yield tuple(Shard(front) if Shard(front) in own else R for own in options)
    for back in range(1, ndim + 1):
        dims = [tensor.ndim - back for tensor in tensors]
        yield tuple(Shard(dim) if Shard(dim) in own else R for dim, own in zip(dims, options, strict=True))
    yield tuple(P if P in own else R for own in options)
    for at, own in enumerate(options):
        for place in own[1:]:
            yield (*whole[:at], place, *whole[at + 1 :])
    for a, b in itertools.combinations(range(len(tensors)), 2):
        for one, other in itertools.product(options[a][1:], options[b][1:]):
            if _length(tensors[a], one) == _length(tensors[b], other):
                choice = list(whole)
                choice[a], choice[b] = one, other
                yield tuple(choice)


def _length(tensor: torch.Tensor, place: PerMeshAxisSpmdType) -> int:
    return tensor.shape[place.dim] if isinstance(place, Shard) else 0


def local_choices(tensors: Sequence[torch.Tensor]) -> list[tuple[PerMeshAxisLocalSpmdType, ...]]:
    """Everything alike, and each operand apart from the others; each combination of two types that mix at all."""
    alike = [tuple([place] * len(tensors)) for place in (V, I, P)]
    apart = [
        tuple(one if at == own else other for at in range(len(tensors)))
        for own in range(len(tensors))
        for one, other in ((V, R), (P, R), (R, P), (P, V), (I, R), (I, V))
    ]
    sound = [choice for choice in dict.fromkeys([*alike, *apart]) if set(choice) != {R}]
    return [
        choice
        for choice in sound
        if not any(place is P and tensor.dtype is torch.bool for place, tensor in zip(choice, tensors, strict=True))
    ][:16]
