"""Constants among shards: ones and zeros can be cut anywhere, and what is made like a shard is cut like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .global_ruleset import differences, shown
from .values import real

torch.set_num_threads(1)

CASES: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    ("zeros_like", lambda x: torch.zeros_like(x), (real(4, 5),)),
    ("shard plus ones_like", lambda x: x + torch.ones_like(x), (real(4, 5),)),
    ("shard times full_like", lambda x: torch.full_like(x, 2.0) * x, (real(4, 5),)),
    ("full_like with a tensor", lambda x, v: torch.full_like(x.detach(), v.detach()), (real(4, 5), real())),
    ("ones of the local shape", lambda x: x.new_ones(x.shape) * x, (real(4, 5),)),
    ("zeros of the local shape", lambda x: torch.zeros(x.shape, dtype=x.dtype) + x, (real(4, 5),)),
    ("zeros that are broadcast", lambda x: torch.zeros(x.shape[-1], dtype=x.dtype) + x, (real(4, 5),)),
    ("running count", lambda x: torch.ones_like(x).cumsum(0) * x, (real(4, 5),)),
    ("count of a shard", lambda x: torch.ones_like(x).sum(0), (real(4, 5),)),
    ("mean by count", lambda x: torch.ones_like(x).sum(0) * x.sum(0), (real(4, 5),)),
    ("ones_like plus one", lambda x: (torch.ones_like(x) + 1) * x, (real(4, 5),)),
    ("positions of another dim", lambda x: torch.arange(5.0) * x, (real(4, 5),)),
    ("written into zeros_like", lambda x: torch.zeros_like(x).add_(x), (real(4, 5),)),
    ("another written into zeros_like", lambda x, y: torch.zeros_like(x).add_(y), (real(4, 5), real(5))),
    ("copied into empty_like", lambda x: torch.empty_like(x).copy_(x), (real(4, 5),)),
    ("filled", lambda x: x.clone().fill_(2.0), (real(4, 5),)),
    ("zeroed", lambda x: x.detach().clone().zero_(), (real(4, 5),)),
    ("masked in place", lambda x: x.clone().masked_fill_(x > 0, 0.0), (real(4, 5),)),
    ("out=", lambda x, y: torch.add(x.detach(), y.detach(), out=torch.empty_like(x)), (real(4, 5), real(5))),
]


@pytest.mark.parametrize(("name", "fn", "tensors"), CASES, ids=[case[0] for case in CASES])
def test_constants(name: str, fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    assert shown(differences(fn, *tensors)) == []


def test_positions_from_the_local_shape_count_from_zero_on_every_rank() -> None:
    report = differences(lambda x: torch.arange(x.shape[0], dtype=x.dtype).unsqueeze(1) * x, real(4, 5), sizes=(2,))
    assert report.wrong == ()
    assert report.covered == 3
