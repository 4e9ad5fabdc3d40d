"""Values for operands: reproducible, and in the domain that an operator needs."""

from __future__ import annotations

import math

import torch


def _generator(shape: tuple[int, ...]) -> torch.Generator:
    return torch.Generator().manual_seed(hash(shape) % 2**31)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=_generator(shape))


def positive(*shape: int) -> torch.Tensor:
    """Between 0.5 and 1.5."""
    return torch.rand(shape, dtype=torch.float64, generator=_generator(shape)) + 0.5


def unit(*shape: int) -> torch.Tensor:
    """Between 0.1 and 0.9."""
    return torch.rand(shape, dtype=torch.float64, generator=_generator(shape)) * 0.8 + 0.1


def complexes(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex128, generator=_generator(shape))


def integers(high: int, *shape: int) -> torch.Tensor:
    """From 0 to ``high - 1``."""
    return torch.randint(0, high, shape, generator=_generator(shape))


def booleans(*shape: int) -> torch.Tensor:
    """Every other one, so that two shards differ."""
    return (torch.arange(math.prod(shape)) % 3 == 0).reshape(shape)
