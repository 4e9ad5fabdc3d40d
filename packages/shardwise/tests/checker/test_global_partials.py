"""Pending sums in global mode, inferred or asked for, and the same meaning in local mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import operand, place, refused


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
        lambda x, w: spmd.linear(x, w, "tp", (S(1), S(-1)), P),
        lambda x, w: spmd.linear(x.unsqueeze(0), w, "tp", S(2), P),
        lambda x, w: spmd.einsum("bk,nk->bn", x, w, axis="tp", src=V, dst=P),
        lambda x, w: spmd.mean(x, 1, out_partial_axes="tp"),
        lambda x, w: spmd.mean(x, "tp", src=S(1), dst=P),
        lambda x, w: spmd.mean(x, out_partial_axes="tp", count=128),
        lambda x, w: spmd.mean(x, out_partial_axes="tp", count=spmd.Scalar(128, {"tp": R})),
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


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda x, w: spmd.sum(x, "tp", src=S(0), dst=P), "SW212", ("x", "dim 0", "dim 1", 'src=S(1) for "tp"')),
        (lambda x, w: spmd.mean(x, "tp", src=S(0), dst=P), "SW212", ("x", "dim 0", "dim 1")),
        (lambda x, w: spmd.linear(x, w, "tp", S(0), P), "SW212", ("x", "dim 0", "dim 1")),
        (lambda x, w: spmd.linear(x, w, "tp", (S(1), S(0)), P), "SW212", ("w", "dim 0", "dim 1")),
        (lambda x, w: spmd.einsum("bk,nk->bn", x, w, axis="tp", src=(S(0), S(1))), "SW212", ("x", "dim 0")),
        (lambda x, w: spmd.matmul(x, w.t(), "tp", (R, V), P), "SW201", ("x", "R (replicate)", "V (varying)")),
        (lambda x, w: spmd.sum(x, "tp", src=R, dst=P), "SW201", ("x", "R (replicate)", "V (varying)")),
        (lambda x, w: spmd.linear(x, w, "tp", (V, V, V), P), "SW905", ("3 for 2 operands",)),
    ],
)
def test_what_a_claim_says_of_its_operands_is_compared_with_what_they_are(
    tp_mesh: Any, call: Any, code: str, words: tuple[str, ...], local: bool
) -> None:
    x, w = operands()
    with typecheck(local=local), refused(code, *words):
        call(x, w)


@pytest.mark.parametrize("local", [True, False])
def test_a_known_shard_must_be_contracted(tp_mesh: Any, local: bool) -> None:
    x, _ = operands()
    rows = spmd.assert_type(torch.randn(4, 4), {"tp": S(0)})
    whole = spmd.assert_type(torch.randn(16, 4), {"tp": R})
    with typecheck(local=local):
        for call in (spmd.sum, spmd.mean):
            with refused("SW135", "x is sharded on dim 1"):
                call(x, 0, out_partial_axes="tp")
        with refused("SW135", "whole" if local else "rows"):
            spmd.linear(rows, whole, out_partial_axes="tp")


COUNTS = [
    (R, None, ()),
    ("I", None, ()),
    (V, "SW110", ("divides a pending sum over tp by n", 'all_reduce(n, "tp", src=V, dst=R)')),
    (P, "SW114", ("n is still a partial sum over tp", 'all_reduce(n, "tp", src=P, dst=R)')),
]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize(("placement", "code", "words"), COUNTS)
def test_the_count_of_a_mean_is_one_number_for_all(
    tp_mesh: Any, placement: Any, code: str | None, words: tuple[str, ...], scalar: bool, local: bool
) -> None:
    x, _ = operands()
    placement = spmd.PerMeshAxisLocalSpmdType(str(placement))
    n = spmd.Scalar(8, {"tp": placement}) if scalar else spmd.assert_type(torch.tensor(8.0), {"tp": placement})
    with typecheck(local=local):
        if code is None:
            assert place(spmd.mean(x, count=n, out_partial_axes="tp")) == "P"
        else:
            # a pending sum of numbers takes no collective: only a tensor's is a repair
            with refused(code, *(words[:1] if scalar and placement is P else words)):
                spmd.mean(x, count=n, out_partial_axes="tp")


@pytest.mark.parametrize("local", [True, False])
def test_without_a_count_the_shards_must_be_even(tp_mesh: Any, local: bool) -> None:
    x = spmd.assert_type(torch.randn(8, 4), {"tp": S(0)}, even=False)
    collector = Collector(mesh="", script="", rank=0)
    with checking(local=local, collect=collector):
        assert place(spmd.mean(x, 0, out_partial_axes="tp", even=True)) == "P"
        assert place(spmd.mean(x, 0, out_partial_axes="tp", count=20)) == "P"
        assert place(spmd.mean(x, 0, out_partial_axes="tp")) == ""
    result = collector.result()
    assert [finding.code for finding in result.findings] == ["SW417"]
    assert "count=n" in result.findings[0].help[0]
    assert any("mean(even=True)" in str(trusted) for trusted in result.trusted)


def test_without_a_count_every_axis_that_cuts_must_be_named(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(6, 4), {"dp": S(0), "tp": S(1)})
    pending = spmd.assert_type(torch.randn(6, 4), {"dp": P, "tp": R})
    with typecheck(local=False):
        with refused("SW403", "tp", 'out_partial_axes=("dp", "tp")'):
            spmd.mean(x, out_partial_axes="dp")
        with refused("SW403", "dim 1", 'out_partial_axes="tp"'):
            spmd.mean(x, 1)
        with refused("SW135", "too small by 2", 'without "dp"'):
            spmd.mean(pending, out_partial_axes="dp")
        assert str(spmd.typeof(spmd.mean(x, out_partial_axes=("dp", "tp")))) == "f32[] {dp: P, tp: P}"
        assert str(spmd.typeof(spmd.mean(x, 1, out_partial_axes="tp"))) == "f32[6@dp] {tp: P}"
        assert str(spmd.typeof(spmd.mean(x, out_partial_axes="dp", count=9))) == "f32[] {dp: P, tp: P}"
        assert str(spmd.typeof(spmd.mean(pending))) == "f32[] {dp: P, tp: R}"
    with typecheck(local=False, partials="explicit"), refused("SW407", "tp"):
        spmd.mean(x, out_partial_axes="dp", count=9)


def test_a_mean_over_whole_dims_is_a_mean(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(6, 4), {"dp": S(0), "tp": R})
    for local in (True, False):
        with typecheck(local=local):
            mean = spmd.mean(x, 1)
            torch.testing.assert_close(mean, x.mean(1))
            assert place(mean, "dp") == "V"
            assert place(mean) == "R"


def test_a_number_per_rank_is_an_addend_where_global_types_do_not_know_better(tp_mesh: Any) -> None:
    with typecheck(local=False):
        own = spmd.assert_type(torch.tensor(3.0), {"tp": V})
        assert place(spmd.all_reduce(own, "tp", src=V, dst=R)) == "R"


@pytest.mark.parametrize("local", [True, False])
def test_a_sum_of_ones_over_the_ranks_counts(tp_mesh: Any, local: bool) -> None:
    """A constant in the shape of a shard is cut as the shard is."""
    x = operand("f32[4@tp, 3]")
    with typecheck(local=local):
        count = spmd.sum(torch.ones_like(x), out_partial_axes="tp")
        assert str(spmd.typeof(count)) == "f32[] {tp: P}"
