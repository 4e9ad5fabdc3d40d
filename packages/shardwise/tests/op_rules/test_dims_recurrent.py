"""What the rules say about sharded recurrent networks, against the numbers: the batch may be sharded, nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from .global_ruleset import differences, shown
from .values import real

torch.set_num_threads(1)


def fitting(x: torch.Tensor, states: tuple[torch.Tensor, ...], batch: int) -> None:
    """The kernels read beyond the end of states that do not fit."""
    if any(state.shape != (1, x.shape[batch], 2) for state in states) or x.shape[2] != 3:
        raise ValueError("sizes")


def weight(*shape: int) -> torch.Tensor:
    """A constant, the same on every rank."""
    return torch.linspace(-1.0, 1.0, math.prod(shape), dtype=torch.float64).view(shape)


def lstm(batch_first: bool) -> Callable[..., Any]:
    def fn(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        fitting(x, (h, c), 0 if batch_first else 1)
        return torch.lstm(x, (h, c), [weight(8, 3), weight(8, 2)], False, 1, 0.0, False, False, batch_first)

    return fn


def gru(x: torch.Tensor, h: torch.Tensor) -> Any:
    fitting(x, (h,), 1)
    return torch.gru(x, h, [weight(6, 3), weight(6, 2)], False, 1, 0.0, False, False, False)


CASES: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    ("lstm, batch first", lstm(True), (real(4, 5, 3), real(1, 4, 2), real(1, 4, 2))),
    ("gru, time first", gru, (real(5, 4, 3), real(1, 4, 2))),
    ("gru_cell", torch.gru_cell, (real(4, 3), real(4, 2), real(6, 3), real(6, 2))),
    (
        "lstm_cell",
        lambda x, h, c: torch.lstm_cell(x, (h, c), weight(8, 3), weight(8, 2)),
        (real(4, 3), real(4, 2), real(4, 2)),
    ),
]


@pytest.mark.slow_but_one_in(2)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "fn", "tensors"), CASES, ids=[case[0] for case in CASES])
def test_only_the_batch_may_be_sharded(name: str, fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    report = differences(fn, *tensors)
    assert shown(report) == []
    assert report.covered == 2
