"""A pending norm: the norm of a shard may be squared, and be put among others; what is admitted holds on all ranks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import shardwise as spmd
from shardwise import I, P, S
from shardwise.checker import typecheck
from shardwise.types import SpmdTypeError

from .on_ranks import RANKS, Case, drawn, judge, shard, whole

X = drawn(2 * RANKS, 6)
Y = drawn(4, 3 * RANKS, seed=1)
BOTH = X.square().sum() + Y.square().sum()
LARGEST = torch.stack([X.abs().max(), Y.abs().max()]).max()


def cut() -> tuple[Tensor, Tensor]:
    return shard(X, 0), shard(Y, 1)


def by_hand() -> Tensor:
    """As everybody writes the norm of all gradients: norms, the norm of them, its square, the sum, the root."""
    norms = torch.stack([torch.norm(x) for x in cut()])
    total = torch.linalg.vector_norm(norms, 2) ** 2
    torch.distributed.all_reduce(total)
    return total.sqrt()


CASES = [
    Case("the norm of all elements", lambda: shard(X, 0).norm(), X.norm()),
    Case("of order 2.0", lambda: torch.norm(shard(X, 0), 2.0), X.norm()),
    Case("by its name", lambda: torch.norm(shard(X, 0), p="fro"), X.norm()),
    Case("linalg.norm", lambda: torch.linalg.norm(shard(X, 0)), X.norm()),
    Case("linalg.norm of a vector", lambda: torch.linalg.norm(shard(X[:, 0], 0), 2), X[:, 0].norm()),
    Case("along the sharded dim", lambda: torch.linalg.vector_norm(shard(X, 0), dim=0), X.norm(dim=0)),
    Case("along another dim", lambda: shard(X, 0).norm(dim=1), X.norm(dim=1)),
    Case("a distance", lambda: torch.dist(shard(X, 0), shard(X.flip(1), 0)), torch.dist(X, X.flip(1))),
    Case("in a list", lambda: torch._foreach_norm([shard(X, 0)])[0], X.norm()),
    Case("squared", lambda: shard(X, 0).norm() ** 2, X.square().sum()),
    Case("square()", lambda: shard(X, 0).norm().square(), X.square().sum()),
    Case("in half as large", lambda: shard(X, 0).norm() / 2, X.norm() / 2),
    Case("the norm of several", lambda: torch.stack([x.norm() for x in cut()]).norm(), BOTH.sqrt()),
    Case("cat of several", lambda: torch.cat([x.norm().view(1) for x in cut()]).norm(2) ** 2, BOTH),
    Case("the sum of the squares", lambda: sum(x.norm() ** 2 for x in cut()), BOTH),
    Case("by hand", by_hand, BOTH.sqrt()),
    Case("the largest of several, by torch", lambda: torch.nn.utils.get_total_norm(cut(), math.inf), LARGEST),
    Case("in one kernel", lambda: torch.nn.utils.get_total_norm(cut(), math.inf, foreach=True), LARGEST),
    Case("of one", lambda: torch.nn.utils.get_total_norm(-shard(X, 0), math.inf), X.abs().max()),
    Case("cast", lambda: shard(X, 0).norm().float().double() ** 2, X.float().norm().double() ** 2),
    Case("of what may be below zero", lambda: torch.linalg.vector_norm(shard(X, 0).amax(0), math.inf), code="SW112"),
    Case("another order of norms", lambda: torch.stack([x.norm() for x in cut()]).norm(3), code="SW112"),
    Case("the spectral norm", lambda: torch.linalg.norm(shard(X, 0), 2), code="SW405"),
    Case("the largest of norms", lambda: torch.stack([x.norm() for x in cut()]).max(), code="SW112"),
    Case("their sum", lambda: shard(X, 0).norm() + shard(Y, 1).norm(), code="SW112"),
    Case("its cube", lambda: shard(X, 0).norm() ** 3, code="SW112"),
    Case("its inverse", lambda: 1.0 / (shard(X, 0).norm() + 1e-6), code="SW112"),
    Case("times a negative number", lambda: shard(X, 0).norm() * -1.0, code="SW112"),
    Case("what it normalises", lambda: shard(X, 0) / shard(X, 0).norm(), code="SW110"),
    Case(
        "beside the norm of what all ranks have",
        lambda: torch.stack([shard(X, 0).norm(), whole(Y).norm()]),
        code="SW113",
    ),
    Case("read", lambda: torch.tensor(shard(X, 0).norm().item()), code="SW115"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_norm_over_a_sharded_dim_is_what_its_type_says(case: Case) -> None:
    judge(case)


def test_a_raw_sum_of_it_names_the_square(tp_mesh: Any) -> None:
    with typecheck(local=False), pytest.raises(SpmdTypeError) as caught:
        torch.distributed.all_reduce(spmd.assert_type(torch.randn(4, 5), {"tp": S(0)}).norm())
    assert caught.value.code == "SW210"
    assert "square()" in caught.value.help[0]


def test_the_gradient_of_what_is_squared_and_summed_is_that_of_the_whole(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = spmd.assert_type(torch.randn(4, 5).requires_grad_(), {"tp": S(0)})
        (0.1 * spmd.all_reduce(x.norm() ** 2, "tp", src=P, dst=I)).backward()
        torch.testing.assert_close(x.grad, 0.2 * x.detach())


def test_nobody_asked_for_it_where_partial_results_are_asked_for_by_name(tp_mesh: Any) -> None:
    with typecheck(local=False, partials="explicit"), pytest.raises(SpmdTypeError, match="SW405"):
        spmd.assert_type(torch.randn(4, 5), {"tp": S(0)}).norm()
