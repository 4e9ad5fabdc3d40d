"""Is a claim about a random operator true? Equal numbers for equal values, equal distributions for shards.

Where a result is replicate, invariant or a pending sum, generators that are seeded alike on all ranks make the operator
a function, and ``check_claim`` and ``Truth`` judge it as they judge any other: ``synchronised(fn, seed)``.

Where it is sharded, each rank draws for itself, and the pieces put together are never the global result. They must
have its distribution: ``refute_distribution`` compares the means of all elements, and of all products of two, over many
draws with independent generators, so that elements which the whole draws together (a dropped channel, a sampled
category) are told from elements that are drawn apart. A difference counts from ``SIGMAS`` standard errors.
Source: docs/semantics.md section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shardwise.interop.tensors.containers import tensors_in
from shardwise.types.placement import PerMeshAxisSpmdType, Shard

from .local_types import Tensors
from .sharded_types import FAILURES

DRAWS = 1500
SIGMAS = 6.5
"""In 10**4 comparisons of equal distributions, one that differs by this much is seen once in a million runs."""


def synchronised(fn: Callable[..., object], seed: int) -> Callable[..., object]:
    """``fn`` with the generator seeded before each call, as it is on ranks that are seeded alike."""

    def call(*operands: torch.Tensor) -> object:
        torch.manual_seed(seed)
        return fn(*operands)

    return call


def is_random(fn: Callable[..., object], values: Sequence[torch.Tensor]) -> bool:
    """True if two seeds give two results."""
    first, second = (tensors_in(synchronised(fn, seed)(*values)) for seed in (1, 2))
    return any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(first, second, strict=True))


def refute_distribution(
    fn: Callable[..., object],
    values: Sequence[torch.Tensor],
    operands: Sequence[PerMeshAxisSpmdType],
    claim: Shard,
    *,
    size: int = 2,
    draws: int = DRAWS,
    seed: int = 0,
) -> str | None:
    """Why pieces drawn apart along ``claim.dim`` do not have the distribution of the whole; None if they do.

    ``operands``  R or S(i) for each value; what is a pending sum has no distribution of its own.
    """
    if any(place.is_pending_sum("the oracle") for place in operands):
        return "a pending sum is split in some way, which its distribution depends on"
    ranks = _deal(values, operands, size)
    torch.manual_seed(seed)
    wholes, joined = [], []
    for _ in range(draws):
        wholes.append(tensors_in(fn(*values))[0].double())
        try:
            pieces = [tensors_in(fn(*local))[0].double() for local in ranks]
        except FAILURES as error:
            return f"the operator fails on the ranks' parts: {error}"
        try:
            joined.append(torch.cat(pieces, claim.dim))
        except (RuntimeError, IndexError):
            return f"the pieces do not fit together along dim {claim.dim}"
        if joined[-1].shape != wholes[-1].shape:
            return f"together the pieces have shape {tuple(joined[-1].shape)}, the whole {tuple(wholes[-1].shape)}"
    whole, together = (torch.stack(each).flatten(1) for each in (wholes, joined))
    means = _apart(whole, together)
    if means > SIGMAS:
        return f"the mean of some element differs by {means:.1f} standard errors"
    products = _apart(_products(whole), _products(together))
    return None if products <= SIGMAS else f"the covariance of two elements differs by {products:.1f} standard errors"


def _deal(values: Sequence[torch.Tensor], operands: Sequence[PerMeshAxisSpmdType], size: int) -> list[Tensors]:
    dealt = [
        torch.tensor_split(value, size, place.dim) if isinstance(place, Shard) else [value] * size
        for value, place in zip(values, operands, strict=True)
    ]
    return [tuple(pieces[rank] for pieces in dealt) for rank in range(size)]


def _products(samples: torch.Tensor) -> torch.Tensor:
    """Of every two elements, around their means: [draws, elements, elements]."""
    centred = samples - samples.mean(0)
    return (centred.unsqueeze(2) * centred.unsqueeze(1)).flatten(1)


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference between means over draws, in its standard errors."""
    error = torch.sqrt((one.var(0) + other.var(0)) / len(one))
    difference = (one.mean(0) - other.mean(0)).abs()
    exact = error < 1e-12
    return float(torch.where(exact, torch.where(difference < 1e-9, 0.0, torch.inf), difference / error).max())
