"""The oracle objects to wrong rules, and says where; it is silent on right ones."""

from __future__ import annotations

import pytest
import torch

from shardwise.oracle.local_types import check_claim
from shardwise.types.placement import I, P, R, V

torch.set_num_threads(1)
X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], dtype=torch.float64)
Y = torch.tensor([[0.5, 2.0, -1.0], [1.5, -0.25, 2.5]], dtype=torch.float64)
W = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.25]], dtype=torch.float64)

RIGHT = [
    pytest.param(torch.add, (X, Y), (P, P), P, id="P + P is P"),
    pytest.param(torch.mul, (X, Y), (P, R), P, id="P * R is P"),
    pytest.param(torch.matmul, (X, W), (R, P), P, id="R @ P is P"),
    pytest.param(torch.matmul, (X, W), (V, R), V, id="V @ R is V"),
    pytest.param(torch.mul, (X, Y), (R, R), R, id="R * R is R"),
    pytest.param(torch.mul, (X, Y), (I, I), I, id="I * I is I"),
    pytest.param(torch.relu, (X,), (V,), V, id="relu of V is V"),
    pytest.param(torch.zeros_like, (X,), (V,), R, id="zeros like V are R"),
    pytest.param(torch.sum, (X,), (P,), P, id="sum of P is P"),
]
WRONG = [
    pytest.param(torch.add, (X, Y), (P, R), P, "forward", (0, 1), id="P + R as P: added twice"),
    pytest.param(torch.mul, (X, Y), (P, P), P, "forward", (0, 1), id="P * P as P"),
    pytest.param(torch.relu, (X,), (P,), P, "forward", (0, 1), id="relu of P as P"),
    pytest.param(torch.relu, (X,), (P,), R, "forward", (1,), id="relu of P as R"),
    pytest.param(torch.relu, (X,), (P,), V, "forward", (0,), id="relu of P as V"),
    pytest.param(torch.mul, (X, Y), (V, R), R, "forward", (1,), id="V * R as R"),
    pytest.param(torch.mul, (X, Y), (V, R), P, "forward", (0,), id="V * R as P"),
    pytest.param(torch.mul, (X, Y), (I, V), V, "backward", (0,), id="I * V as V: the I gradient is not whole"),
    pytest.param(torch.mul, (X, Y), (I, R), R, "backward", (0,), id="I * R as R"),
    pytest.param(torch.mul, (X, Y), (I, R), I, "backward", (0, 1), id="I * R as I: the R gradient is counted twice"),
    pytest.param(torch.sin, (X,), (R,), I, "backward", (0, 1), id="R read as I"),
    pytest.param(torch.sin, (X,), (I,), R, "backward", (0,), id="I read as R"),
    pytest.param(lambda x: x.long(), (X,), (P,), P, "forward", (0, 1), id="a rounding cast of P"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("fn", "values", "placements", "claim"), RIGHT)
def test_a_true_claim_stands(fn, values, placements, claim, size, dtype):
    assert check_claim(fn, [value.to(dtype) for value in values], placements, claim, size=size) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize(("fn", "values", "placements", "claim", "phase", "ranks"), WRONG)
def test_a_wrong_claim_is_refuted_where_it_is_wrong(fn, values, placements, claim, phase, ranks, dtype):
    found = check_claim(fn, [value.to(dtype) for value in values], placements, claim)
    assert found is not None
    assert (found.phase, found.ranks) == (phase, ranks)
    assert not found.index or len(found.index) == 2


def test_a_disagreement_names_rank_and_index():
    def wrong_on_one_element(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.where(torch.arange(6).reshape(2, 3) == 4, y + x.detach() ** 2, y)

    found = check_claim(wrong_on_one_element, (X,), (P,), P)
    assert found is not None
    assert (found.phase, found.which, found.index) == ("forward", 0, (1, 1))
    assert "sum over ranks [0, 1] at [1, 1]" in str(found)


def test_a_function_whose_backward_is_wrong_is_refuted_by_its_gradient():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            # Right on one device only if ranks never differ: the cotangent's first element is used throughout.
            return grad.abs()

    found = check_claim(Doubled.apply, (X,), (R,), R)
    assert found is not None
    assert found.phase == "backward"


def test_the_ranks_of_three_are_all_compared():
    calls: list[int] = []

    def third_differs(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(calls))
        return x + (1 if len(calls) == 3 else 0)

    found = check_claim(third_differs, (X,), (R,), R, size=3)
    assert found is not None
    assert found.ranks == (2,)
    assert found.index == (0, 0)


def test_values_and_placements_must_pair_up():
    with pytest.raises(ValueError, match="2 values but 1 placements"):
        check_claim(torch.add, (X, Y), (R,), R)
