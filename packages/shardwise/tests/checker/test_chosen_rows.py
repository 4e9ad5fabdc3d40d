"""Probed functions whose verdict hangs on more than the call: rows that others choose, a wrapper's average."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import Function

import shardwise as spmd
from shardwise import R, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector


class Chosen(Function):
    """The sum over ranks of what each of them chooses: its derivative is only right if one rank chooses each row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.shape = x.shape
        chosen = x.new_zeros(len(x))
        rows = (index >= 0).nonzero()[:, 0]
        chosen[rows] = x[rows, index[rows]]
        dist.all_reduce(chosen, group=group)
        ctx.save_for_backward(index, x)
        return chosen.square().sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        index, _ = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_fill(0, index.clamp(min=0), 1.0) * grad, None, None


@pytest.mark.parametrize(("where", "codes"), [(R, ["SW307"]), (V, [])], ids=repr)
def test_of_an_index_that_varies_other_ranks_have_values_that_nobody_knows(where, codes, mesh):
    found = Collector()
    with checking(strict=False, collect=found):
        x = spmd.assert_type(torch.randn(3, 4, requires_grad=True), {"dp": R, "tp": V})
        index = spmd.assert_type(torch.tensor([0, -1, 2]), {"dp": R, "tp": where})
        Chosen.apply(x * 1, index, mesh.get_group("tp"))
    assert [one.code for one in found.result().findings] == codes


class OfOneRank(Chosen):
    """Right where each row is chosen on one rank alone, as where each rank has some of all classes."""

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        index, x = ctx.saved_tensors
        rows = (index >= 0).nonzero()[:, 0]
        made = grad.new_zeros(ctx.shape)
        made[rows, index[rows]] = 2 * x[rows, index[rows]] * grad
        return made, None, None


@pytest.mark.parametrize(
    ("index", "codes"),
    [
        (lambda: torch.tensor([0, -1, 2]), []),
        (lambda: spmd.assert_type(torch.tensor([0, 1, 2]), {"dp": R, "tp": R}), ["SW307"]),
        (lambda: torch.tensor([0, 1, 2]), []),
    ],
    ids=["marks", "all, on all ranks", "all"],
)
def test_each_row_may_be_marked_on_one_rank_alone(index, codes, mesh):
    """An index that every rank has marks all rows for all; of one that nobody has typed other ranks may mark none."""
    found = Collector()
    with checking(strict=False, collect=found):
        x = torch.randn(3, 4, requires_grad=True, dtype=torch.float64)
        OfOneRank.apply(x * 1, index(), mesh.get_group("tp"))
    assert [one.code for one in found.result().findings] == codes


class ScaledGather(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x, group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(ctx.group.size())[ctx.group.rank()] * ctx.group.size(), None


@pytest.mark.parametrize(("averaged", "code"), [(False, "SW307"), (True, "SW309")])
def test_a_factor_that_a_wrapper_divides_by_is_a_warning(averaged, code, mesh):
    """As in ArcFace, where DistributedDataParallel averages what backward has multiplied."""
    found = Collector()
    with checking(strict=False, collect=found) as session:
        if averaged:
            session.averaged = frozenset({spmd.normalize_axis("tp")})
        x = spmd.assert_type(torch.randn(3, 4, requires_grad=True), {"dp": R, "tp": V})
        ScaledGather.apply(x * 1, mesh.get_group("tp"))
    assert [one.code for one in found.result().findings] == [code]
