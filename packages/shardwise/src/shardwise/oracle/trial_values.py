"""Random operands that a function is tried with on every rank, and when two results are the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from shardwise.interop.torch_compat import no_torch_function

from .function_runs import FunctionRuns

EQUAL, DIFFERENT = "RI", "VP"
"""The placements of operands that are equal on all ranks, and of those that are not."""


def _seeded(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(functools.reduce(lambda a, b: a * 1009 + b + 1, numbers, 17))


def random_values(shape: Sequence[int], *seed: int) -> torch.Tensor:
    with no_torch_function():  # these are no draws of the program
        return torch.randn(tuple(shape), generator=_seeded(*seed), dtype=torch.float64)


def trial_values(runs: FunctionRuns, kinds: str, rank: int, salt: int = 0) -> list[torch.Tensor]:
    """Operands that are equal on all ranks where ``kinds`` says so."""
    return [
        random_values(runs.shape(at), 1, salt, position, 0 if kind in EQUAL else rank + 1)
        for position, (at, kind) in enumerate(zip(runs.operands, kinds, strict=True))
    ]


def each_rank(rank: int, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [random_values(one.shape, 2, at, rank).to(one.dtype) for at, one in enumerate(results)]


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max()) if a.numel() else 0.0


def all_equal(values: Sequence[torch.Tensor]) -> bool:
    return all(one.shape == values[0].shape and close(one, values[0]) for one in values[1:])


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape:
        return False
    double = a.dtype is torch.float64 and b.dtype is torch.float64
    rtol, atol = (1e-6, 1e-9) if double else (1e-4, 1e-5)
    return torch.allclose(a.double(), b.double(), rtol=rtol, atol=atol, equal_nan=True)
