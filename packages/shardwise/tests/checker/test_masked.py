"""The functions of ``torch.masked`` are checked as what they are as a whole, whatever name a program has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.masked import mean as average

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.axis import MeshAxis


@pytest.fixture
def tp() -> Iterator[str]:
    with spmd.set_current_mesh({"tp": MeshAxis.of(2, 1)}):
        yield "tp"


def shard(dim: int) -> torch.Tensor:
    return spmd.assert_type(torch.randn(4, 6), {"tp": S(dim)})


@pytest.mark.parametrize("mean", [lambda x, dim: torch.masked.mean(x, dim), lambda x, dim: average(x, dim)])
def test_a_mean_over_a_sharded_dim_is_a_pending_average_under_every_name_and_refused_where_a_mask_counts(
    mean: Any, tp: str
) -> None:
    with typecheck(local=False):
        assert str(spmd.typeof(mean(shard(1), 1))) == "f32[4] {tp: P(avg)}"
    with typecheck(local=False, partials="explicit"), pytest.raises(SpmdTypeError, match="SW403") as caught:
        mean(shard(1), 1)
    assert "this rank's elements only" in str(caught.value.finding)
    with typecheck(local=False), pytest.raises(SpmdTypeError, match="SW403"):
        torch.masked.mean(shard(1), 1, mask=spmd.assert_type(torch.rand(4, 6) > 0.5, {"tp": S(1)}))


def test_the_mean_along_a_whole_dim_is_a_shard(tp: str) -> None:
    with typecheck(local=False):
        assert str(spmd.typeof(average(shard(1), 0))) == "f32[6@tp]"


def test_the_call_is_shown_at_its_line_with_its_operand(tp: str) -> None:
    x = shard(0)
    with typecheck(local=False, partials="explicit"), pytest.raises(SpmdTypeError) as caught:
        torch.masked.mean(x, 0)
    finding = caught.value.finding
    assert finding is not None
    assert finding.op == "masked.mean"
    assert finding.location is not None
    assert finding.location.file == __file__
    assert [operand.name for operand in finding.operands] == ["x"]


@pytest.mark.parametrize(("place", "result"), [(R, R), (V, V), (P, P)])
def test_a_masked_sum_passes_a_pending_sum_on(place: Any, result: Any, tp: str) -> None:
    x = spmd.assert_type(torch.randn(4, 6), {"tp": place})
    keep = spmd.assert_type(torch.rand(4, 6) > 0.5, {"tp": R})
    with typecheck():
        assert spmd.maybe_get_axis_local_type(torch.masked.sum(x, 1, mask=keep), tp) is result


def test_a_masked_maximum_of_a_pending_sum_is_refused(tp: str) -> None:
    x = spmd.assert_type(torch.randn(4, 6), {"tp": P})
    with typecheck(), pytest.raises(SpmdTypeError, match="SW112"):
        torch.masked.amax(x, 1)


def test_the_functions_are_pytorchs_own_again_afterwards(tp: str) -> None:
    before = {name: getattr(torch.masked, name).__code__ for name in ("mean", "sum", "softmax")}
    with typecheck():
        assert average.__code__ is not before["mean"]
        with typecheck(local=False):
            pass
        assert average.__code__ is not before["mean"]
    assert {name: getattr(torch.masked, name).__code__ for name in before} == before
    assert not [name for name in vars(torch.masked._ops) if "shardwise" in name]


def test_the_numbers_are_those_of_the_plain_call(tp: str) -> None:
    x = torch.randn(4, 6)
    keep = torch.arange(24).reshape(4, 6) % 5 != 0
    plain = torch.masked.std(x, 1, True, mask=keep)
    with typecheck():
        assert torch.equal(torch.masked.std(x, 1, True, mask=keep), plain)
        assert torch.equal(average(x, dim=0, keepdim=True), x.mean(0, keepdim=True))


def test_the_order_of_a_norm_is_part_of_the_question(tp: str) -> None:
    x = shard(1)
    with typecheck(local=False):
        assert str(spmd.typeof(torch.masked.norm(x, 1.0, 1))) == "f32[4] {tp: P}"
        assert str(spmd.typeof(torch.linalg.vector_norm(x, 1.0, 1))) == "f32[4] {tp: P}"
        for norm in (torch.masked.norm, torch.linalg.vector_norm):
            assert str(spmd.typeof(norm(x, 2.0, 1))) == "f32[4] {tp: P(norm)}"
            with pytest.raises(SpmdTypeError, match="SW405"):
                norm(x, 3.0, 1)
            assert str(spmd.typeof(norm(x, float("inf"), 1))) == "f32[4] {tp: P(max)}"
