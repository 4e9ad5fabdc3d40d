"""All cases of the registry, and the placements under which each is tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from shardwise.types.placement import I, P, PerMeshAxisLocalSpmdType, R, V

from . import linear_cases, module_cases, pure_cases, shaping_cases
from .cases import Case

CASES: list[Case] = [
    *linear_cases.ELEMENTWISE,
    *linear_cases.CASTING,
    *linear_cases.CONTRACTION,
    *linear_cases.REDUCTION,
    *linear_cases.LOSSES,
    *linear_cases.BACKWARD,
    *shaping_cases.VIEWS,
    *shaping_cases.REARRANGED,
    *shaping_cases.JOINED,
    *shaping_cases.INDEXED,
    *module_cases.CONVOLUTION,
    *module_cases.NORMALISATION,
    *module_cases.FOURIER,
    *module_cases.SOLVERS,
    *module_cases.RANDOM_AT_REST,
    *module_cases.FACTORIES,
    *pure_cases.PURE,
]

Placements = tuple[PerMeshAxisLocalSpmdType, ...]


def combinations(values: tuple[torch.Tensor, ...]) -> Iterator[Placements]:
    """Every combination of placements for up to three operands, and a cross-section for more. A mask is never P."""
    choices = [(R, I, V, P) if value.dtype is not torch.bool else (R, I, V) for value in values]
    if len(values) <= 3:
        yield from itertools.product(*choices)
        return
    yield from itertools.product(*([place for place in choice if place in (R, P)] for choice in choices))
    yield (I,) * len(values)
    yield (V,) * len(values)
