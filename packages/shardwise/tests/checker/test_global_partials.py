"""Decision D3: pending sums in global mode, inferred or asked for, and the same meaning in local mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import P, R, S
from shardwise.checker import typecheck

from .helpers import place, refused


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """x [8, 4@tp] and a row-parallel weight [16, 4@tp]."""
    x = spmd.assert_type(torch.randn(8, 4), {"tp": S(1)})
    return x, spmd.assert_type(torch.randn(16, 4), {"tp": S(1)})


def test_a_contraction_over_a_sharded_dim_is_partial_unless_partials_are_explicit(tp_mesh: Any) -> None:
    x, weight = operands()
    with typecheck(local=False):
        assert str(spmd.typeof(F.linear(x, weight))) == "f32[8, 16] {tp: P}"
    with typecheck(local=False, partials="explicit"):
        with refused("SW407", "tp", "out_partial_axes"):
            F.linear(x, weight)
        y = spmd.linear(x, weight, out_partial_axes="tp")
        assert str(spmd.typeof(spmd.all_reduce(y, "tp", dst=R))) == "f32[8, 16] {tp: R}"


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: spmd.linear(x, w, out_partial_axes="tp"),
        lambda x, w: spmd.linear(x, w, "tp", S(1), P),
        lambda x, w: spmd.matmul(x, w.t(), out_partial_axes="tp"),
        lambda x, w: spmd.einsum("bk,nk->bn", x, w, out_partial_axes="tp"),
        lambda x, w: spmd.sum(x, 1, out_partial_axes="tp"),
        lambda x, w: spmd.sum(x, "tp", src=S(1), dst=P),
    ],
)
def test_asking_means_the_same_in_both_modes(tp_mesh: Any, call: Any, local: bool) -> None:
    with typecheck(local=local, partials="explicit"):
        assert place(call(*operands())) == "P"


def test_a_claim_without_a_sharded_contraction_is_refused(tp_mesh: Any) -> None:
    x, _ = operands()
    whole = spmd.assert_type(torch.randn(16, 4), {"tp": R})
    rows = spmd.assert_type(torch.randn(2, 4), {"tp": S(0)})
    with typecheck(local=False):
        with refused("SW402"):
            spmd.linear(x, whole, out_partial_axes="tp")
        with refused("SW135"):
            spmd.linear(rows, whole, out_partial_axes="tp")


def test_a_bias_is_added_once(tp_mesh: Any) -> None:
    x, weight = operands()
    bias = spmd.assert_type(torch.randn(16), {"tp": R})
    pending = spmd.assert_type(torch.randn(16), {"tp": P})
    with typecheck(local=False):
        for call in (F.linear, lambda a, b, c: spmd.linear(a, b, c, out_partial_axes="tp")):
            with refused("SW113", "bias"):
                call(x, weight, bias)
        assert place(spmd.linear(x, weight, pending, out_partial_axes="tp")) == "P"


def test_a_sum_over_named_dims_leaves_the_others_sharded(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(6, 4), {"dp": S(0), "tp": S(1)})
    with typecheck(local=False, partials="explicit"):
        assert str(spmd.typeof(spmd.sum(x, 1, out_partial_axes="tp"))) == "f32[6@dp] {tp: P}"
        assert str(spmd.typeof(spmd.sum(x, 0, keepdim=True, out_partial_axes="dp"))) == "f32[1, 4@tp] {dp: P}"
        with refused("SW407", "dp"):
            spmd.sum(x, out_partial_axes="tp")
