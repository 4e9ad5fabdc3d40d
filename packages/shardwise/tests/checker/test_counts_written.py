"""Counts that are added into memory, ``count += len(rows)``: their scale is that of what the numbers say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import shardwise as spmd
from shardwise import S
from shardwise.checker import typecheck
from shardwise.types import SpmdTypeError

from .test_scale import exponent, typed

RANKS = 4


def added(x: Tensor) -> Tensor:
    count = torch.zeros(())
    for _ in range(2):
        count += x.shape[0]
    return count


COUNTS: list[tuple[str, Callable[[Tensor], Tensor], int]] = [
    ("onto zeros", lambda x: added(x), -1),
    ("its elements", lambda x: torch.zeros(()).add_(x.numel()), -1),
    ("a column, which is whole", lambda x: torch.zeros(()).add_(x.shape[1]), 0),
    ("copied", lambda x: torch.zeros(3).copy_(torch.tensor(x.shape[0])), -1),
    ("filled", lambda x: torch.zeros(3).fill_(x.shape[0]), -1),
    ("overwritten", lambda x: added(x).copy_(torch.full((), x.shape[1])), 0),
]


@pytest.mark.parametrize(("call", "power"), [case[1:] for case in COUNTS], ids=[case[0] for case in COUNTS])
def test_a_count_that_is_written_has_its_scale(tp_mesh, call, power):
    whole = torch.ones(8, 3)
    with typecheck(local=False):
        count = call(typed(whole.chunk(RANKS)[0].clone(), S(0)))
        assert exponent(count) == power
    assert torch.equal(count, call(whole) * float(RANKS) ** power)  # the oracle: what one device has, times n**power


def test_a_count_is_a_term_of_the_sum_that_it_is_stacked_with(tp_mesh):
    with typecheck(local=False):
        x = typed(torch.randn(2, 3), S(0))
        both = torch.stack([x.sum(), added(x)])
        assert spmd.typeof(both).type.is_partial(spmd.normalize_axis("tp"))
        with pytest.raises(SpmdTypeError, match="SW113"):
            torch.stack([x.sum(), torch.zeros(()).add_(x.shape[1])])
