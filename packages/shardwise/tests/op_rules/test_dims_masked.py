"""Reductions and scans of what a mask leaves, against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.masked as masked

from shardwise.op_rules.registry import families

from .agreement import assert_agreement, randn

WHOLE, ROWS, LAST = ([4, 5], [4, 1], [5])
"""Shapes of masks for an input of 4 by 5."""


def keep(shape: list[int]) -> torch.Tensor:
    """A mask that leaves something of every row and column."""
    there = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return there % 3 != 1 if shape == WHOLE else there != 2


CALLS: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "sum": (lambda x, m: masked.sum(x, 1, mask=m), WHOLE),
    "sum of rows": (lambda x, m: masked.sum(x, 0, keepdim=True, mask=m), LAST),
    "mean": (lambda x, m: masked.mean(x, 1, mask=m), WHOLE),
    "mean of columns": (lambda x, m: masked.mean(x, (0,), mask=m), LAST),
    "prod": (lambda x, m: masked.prod(x, 1, mask=m), WHOLE),
    "amax": (lambda x, m: masked.amax(x, 1, mask=m), WHOLE),
    "amin": (lambda x, m: masked.amin(x, 1, keepdim=True, mask=m), WHOLE),
    "argmax": (lambda x, m: masked.argmax(x, 1, mask=m), WHOLE),
    "argmin": (lambda x, m: masked.argmin(x, 0, mask=m), LAST),
    "median": (lambda x, m: masked.median(x, 1, mask=m), WHOLE),
    "logsumexp": (lambda x, m: masked.logsumexp(x, 1, mask=m), WHOLE),
    "norm": (lambda x, m: masked.norm(x, 1.0, 1, mask=m), WHOLE),
    "norm of squares": (lambda x, m: masked.norm(x, 2.0, 1, mask=m), WHOLE),
    "normalize": (lambda x, m: masked.normalize(x, 2.0, 1, mask=m), WHOLE),
    "var": (lambda x, m: masked.var(x, 1, False, mask=m), WHOLE),
    "std": (lambda x, m: masked.std(x, 1, False, mask=m), WHOLE),
    "cumsum": (lambda x, m: masked.cumsum(x, 1, mask=m), WHOLE),
    "cumprod": (lambda x, m: masked.cumprod(x, 0, mask=m), ROWS),
    "softmax": (lambda x, m: masked.softmax(x, 1, mask=m), WHOLE),
    "log_softmax": (lambda x, m: masked.log_softmax(x, 1, mask=m), WHOLE),
    "softmin": (lambda x, m: masked.softmin(x, 1, mask=m), LAST),
    "logaddexp": (lambda x, m: masked.logaddexp(x, 2 * x, input_mask=m, other_mask=m), WHOLE),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CALLS)
def test_a_mask_goes_with_its_input(name: str) -> None:
    fn, shape = CALLS[name]
    (x,) = randn((4, 5))
    assert_agreement(fn, [x, keep(shape)], at_least=1)


def test_without_a_mask_the_mean_of_a_sharded_dim_is_refused() -> None:
    assert_agreement(lambda x: masked.mean(x, 1), randn((4, 5)))


def test_every_function_with_labels_is_tried() -> None:
    assert {f"masked.{name.split()[0]}" for name in CALLS} == {rule.op for rule in families()["masked"]}
