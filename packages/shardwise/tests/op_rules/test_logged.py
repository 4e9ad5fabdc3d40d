"""Is a message of numbers that are logged what it is taken for: do the sums over the ranks say what each of them is?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from shardwise.op_rules.propagation.local import ANY, Given, Weak
from shardwise.op_rules.propagation.logged import is_message, may_be_summed
from shardwise.op_rules.registry import lookup
from shardwise.types.placement import P, R, V

ROWS = torch.randn(12, generator=torch.Generator().manual_seed(0))
Told = Callable[[torch.Tensor, int], torch.Tensor]
"""What a rank says of its rows, where there are so many ranks."""
SUMMED: dict[str, tuple[Given, Told]] = {
    "mean loss": (Given("tensors", P, exponent=1), lambda rows, ranks: rows.mean()),
    "hits": (Given("tensors", P), lambda rows, ranks: (rows > 0).sum().float()),
}
BESIDE: dict[str, tuple[Given, Told]] = {
    "rows": (Given("tensors", Weak.CONSTANT, exponent=-1), lambda rows, ranks: torch.tensor(float(len(rows)))),
    "share": (Given("tensors", R, exponent=-1), lambda rows, ranks: torch.tensor(3.0 / ranks)),
    "rate": (Given("tensors", R), lambda rows, ranks: torch.tensor(0.5)),
    "one": (Given("tensors", Weak.CONSTANT), lambda rows, ranks: torch.tensor(1.0)),
    "nothing": (Given("tensors", Weak.ZERO, exponent=ANY), lambda rows, ranks: torch.tensor(0.0)),
}


def sum_over(told: Told, ranks: int) -> torch.Tensor:
    return torch.stack([told(rows, ranks) for rows in ROWS.chunk(ranks)]).sum()


@pytest.mark.parametrize("summed", SUMMED)
@pytest.mark.parametrize("beside", BESIDE)
def test_what_may_be_summed_beside_a_sum_is_then_what_one_device_says_or_is_averaged_with_it(
    summed: str, beside: str
) -> None:
    (pending, _), (given, told) = SUMMED[summed], BESIDE[beside]
    right = {
        ranks: torch.isclose(sum_over(told, ranks), told(ROWS, 1))
        or (pending.exponent == 1 and torch.isclose(sum_over(told, ranks) / ranks, told(ROWS, 1)))
        for ranks in (2, 3)
    }
    assert may_be_summed([pending, given]) == all(right.values())


@pytest.mark.parametrize("name", SUMMED)
def test_a_pending_sum_has_the_scale_that_is_said(name: str) -> None:
    given, told = SUMMED[name]
    for ranks in (2, 3):
        torch.testing.assert_close(sum_over(told, ranks), told(ROWS, 1) * ranks**given.exponent)


def test_what_is_trained_or_of_each_rank_is_no_message() -> None:
    (loss, _), (hits, _) = SUMMED.values()
    stack, add = lookup("stack"), lookup("add")
    assert stack is not None
    assert add is not None
    assert is_message(stack, [loss, hits])
    assert not is_message(add, [loss, hits])
    assert not is_message(stack, [loss, Given("tensors", P, grad=True)])
    assert not is_message(stack, [Given("tensors", V), Given("tensors", R)])


def test_a_constant_that_may_be_a_count_is_one_and_an_equal_value_of_unknown_scale_is_not() -> None:
    (hits, _) = SUMMED["hits"]
    assert may_be_summed([hits, Given("tensors", Weak.CONSTANT, exponent=None)])
    assert not may_be_summed([hits, Given("tensors", R, exponent=None)])
