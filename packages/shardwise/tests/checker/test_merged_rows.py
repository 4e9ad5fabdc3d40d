"""Dims that are merged although an inner one is sharded: rows in another order, that mean what one device computes.

As in context and sequence parallelism, where ``logits.view(-1, vocabulary)`` merges [batch, sequence@cp].
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import shardwise as spmd
from shardwise import I, P, R, S, V, rules
from shardwise.checker import typecheck

from .helpers import place, refused
from .on_ranks import RANKS, Case, drawn, judge, shard, whole

pytestmark = pytest.mark.processes

X = drawn(3, 2 * RANKS, 5)
WEIGHT = drawn(5, 5, seed=1)
LABELS = torch.arange(3 * 2 * RANKS).view(3, -1) % 5
MASK = LABELS != 2


def rows() -> Tensor:
    return shard(X, 1).view(-1, 5)


def labels() -> Tensor:
    return shard(LABELS, 1).reshape(-1)


def entropy(reduction: str) -> Tensor:
    return F.cross_entropy(rows(), labels(), reduction=reduction)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient

    @staticmethod
    def spmd_typecheck(*, x: Tensor) -> Any:
        return rules.einsum("rf->rf", x, linear_in=(0,))


FLAT = X.view(-1, 5)
CASES = [
    Case("a loss, its mean", lambda: entropy("mean"), F.cross_entropy(FLAT, LABELS.view(-1))),
    Case("a loss, its sum", lambda: entropy("sum"), F.cross_entropy(FLAT, LABELS.view(-1), reduction="sum")),
    Case(
        "a loss of each row, split again",
        lambda: entropy("none").view(3, -1),
        F.cross_entropy(FLAT, LABELS.view(-1), reduction="none").view(3, -1),
    ),
    Case(
        "masked by rows that were merged alike",
        lambda: (entropy("none") * shard(MASK, 1).flatten()).sum(),
        (F.cross_entropy(FLAT, LABELS.view(-1), reduction="none") * MASK.view(-1)).sum(),
    ),
    Case("the sum of rows", lambda: rows().sum(0), FLAT.sum(0)),
    Case("a product over the rows", lambda: rows().T @ rows(), FLAT.T @ FLAT),
    Case("features of rows, split again", lambda: (rows() @ whole(WEIGHT)).view(3, -1, 5), X @ WEIGHT),
    Case("split like another", lambda: rows().relu().view_as(shard(X, 1)), X.relu()),
    Case("split into more dims", lambda: shard(X, 1).flatten(0, 1).view(3, 1, 2, 5), X.view(3, 1, -1, 5)),
    Case("unflatten", lambda: shard(X, 1).flatten(0, 1).unflatten(0, (3, -1)), X),
    Case("with the dims behind it", lambda: shard(X, 1).reshape(-1).square().reshape(3, -1, 5), X.square()),
    Case("moved aside and split", lambda: rows().t().reshape(5, 3, -1), FLAT.t().reshape(5, 3, -1)),
    Case("an own function of rows", lambda: Double.apply(rows()).view(3, -1, 5), 2 * X),
    Case("checkpointed", lambda: checkpoint(torch.tanh, rows(), use_reentrant=True).view(3, -1, 5), X.tanh()),
    Case("dropped out", lambda: F.dropout(rows(), 0.5, training=False).view(3, -1, 5), X),
    Case("a leading dim of 1 is none", lambda: shard(X[:1], 1).view(-1, 5), X[0]),
    Case("meets rows in their places", lambda: rows() + shard(FLAT, 0), code="SW223"),
    Case(
        "meets rows that were merged otherwise", lambda: rows().reshape(-1) + shard(X.mT, 2).reshape(-1), code="SW223"
    ),
    Case("gathered", lambda: spmd.all_gather(rows(), "tp", src=S(0), dst=R), code="SW223"),
    Case("moved to columns", lambda: spmd.all_to_all(rows()[:, :4], "tp", src=S(0), dst=S(1)), code="SW223"),
    Case("split in another way", lambda: rows().view(2, 3, 5), code="SW223"),
    Case("its running sum", lambda: rows().cumsum(0), code="SW405"),
    Case("the first rows", lambda: rows()[:2], code="SW405"),
    Case("an own function of both orders", lambda: Double.apply(rows()) + shard(FLAT, 0), code="SW223"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_merged_rows_mean_what_one_device_computes(case: Case) -> None:
    judge(case)


def loss_and_gradient() -> tuple[Tensor, Tensor]:
    """As a model of [batch, sequence, features] has it: rows for a router, split again, a loss over all rows."""
    x, w = shard(X, 1), whole(WEIGHT.clone().requires_grad_())
    rows = F.linear(x, w).view(-1, 5)
    routed = (rows * rows.softmax(-1).amax(-1, keepdim=True)).view(3, -1, 5)
    loss = F.cross_entropy(F.linear(routed, w).view(-1, 5), shard(LABELS, 1).view(-1))
    spmd.all_reduce(loss, "tp", src=P, dst=I, op="avg").backward()
    assert w.grad is not None
    dist.all_reduce(w.grad)
    return loss.detach(), w.grad


def test_its_gradients_are_those_of_one_device() -> None:
    w = WEIGHT.clone().requires_grad_()
    rows = F.linear(X, w).view(-1, 5)
    routed = (rows * rows.softmax(-1).amax(-1, keepdim=True)).view(3, -1, 5)
    loss = F.cross_entropy(F.linear(routed, w).view(-1, 5), LABELS.view(-1))
    loss.backward()
    judge(Case("loss and gradient", loss_and_gradient, (loss.detach(), w.grad)))


def test_dims_over_two_axes_are_merged_and_split(mesh: Any) -> None:
    with typecheck(local=False):
        x = spmd.assert_type(torch.randn(4, 6, 3), {"dp": S(0), "tp": S(1)})
        rows = x.flatten(0, 1)
        assert str(spmd.typeof(rows)) == "f32[24@dp, 3] {tp: V}"
        assert str(spmd.typeof(rows.mean())) == "f32[] {dp: P(avg), tp: P(avg)}"
        assert str(spmd.typeof(rows.view(4, 6, 3))) == "f32[4@dp, 6@tp, 3]"
        twice = spmd.assert_type(torch.randn(4, 8, 3), spmd.PartitionSpec(None, ("dp", "tp"), None), {}).view(-1, 3)
        assert str(spmd.typeof(twice.view(4, 8, 3))) == "f32[4, 8@(dp,tp), 3]"
        with refused("SW223", "merged from dims of which tp cuts an inner one", "split the rows of rows into [4, 6]"):
            spmd.all_gather(rows, "tp", src=S(0), dst=R)


def test_who_asks_is_told_of_no_dim(tp_mesh: Any) -> None:
    """Joined in the order of the ranks the rows are another tensor than on one device."""
    with typecheck(local=False):
        rows = spmd.assert_type(torch.randn(3, 4, 2), {"tp": S(1)}).flatten(0, 1)
        assert spmd.get_partition_spec(rows) is None
        assert spmd.get_partition_spec(rows.relu()) is None
        assert spmd.get_local_type(rows) == {spmd.normalize_axis("tp"): V}
        assert str(spmd.typeof(rows.view(3, 4, 2))) == "f32[3, 4@tp, 2]"


def test_local_types_ask_nothing(tp_mesh: Any) -> None:
    with typecheck():
        x = spmd.assert_type(torch.randn(3, 4), {"tp": S(1)})
        assert place(x.view(-1) + spmd.assert_type(torch.randn(12), {"tp": S(0)})) == "V"


def test_merged_rows_are_not_the_shard_that_they_are_said_to_be(tp_mesh: Any) -> None:
    """Joined in the order of the ranks they are another tensor than the one that is merged on one device."""
    full = torch.arange(24.0).view(3, 8)
    assert not torch.equal(torch.cat([piece.reshape(-1) for piece in full.chunk(4, 1)]), full.reshape(-1))
    with typecheck(local=False):
        x = spmd.assert_type(full.chunk(4, 1)[0].clone(), {"tp": S(1)})
        for merged in (x.reshape(-1), x.flatten(), x.flatten() * 2):
            with refused("SW131"):
                spmd.assert_type(merged, {"tp": S(0)})
        spmd.assert_type(x.flatten(), {"tp": spmd.V})
        spmd.assert_type(x.t().flatten(), {"tp": S(0)})
