"""The wrong gradient that backward computes first lies nearest to the mistake, and is told with the line of its use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardwise import verify
from shardwise.interop.running.recording import Key, Record, Use
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.comparison.backward_order import first_in_backward
from shardwise.verifier.distance.numbers import Against, ValueDisagreement


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, summed: bool) -> Any:
        ctx.summed = summed
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if ctx.summed:
            grad = grad.clone()
            dist.all_reduce(grad)
        return grad, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Block(nn.Module):
    def __init__(self, mesh: Any, summed: bool) -> None:
        super().__init__()
        self.summed = summed
        self.norm = nn.LayerNorm(4)
        rank, size = mesh["tp"].get_local_rank(), mesh["tp"].size()
        self.up = nn.Parameter(torch.randn(8, 4).chunk(size, 0)[rank].clone())
        self.down = nn.Parameter(torch.randn(4, 8).chunk(size, 1)[rank].clone())

    def forward(self, x: Any) -> Any:
        h = Copy.apply(self.norm(x), self.summed)
        return x + Reduce.apply((h @ self.up.T).relu() @ self.down.T)


def program(mesh: Any, wrong: int | None) -> None:
    torch.manual_seed(0)
    blocks = nn.Sequential(nn.Linear(4, 4), *(Block(mesh, at != wrong) for at in range(3)))
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    blocks(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()


@pytest.mark.one_in(3)
@pytest.mark.processes
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_sum_that_one_block_forgets_is_told_at_the_norm_before_it(wrong):
    verdict = verify(lambda mesh: program(mesh, wrong), {"tp": 2}, strict=False)
    found = verdict.numbers.backward
    assert found is not None, str(verdict)
    assert found.wrong.key.name in (f"{wrong + 1}.norm.weight", f"{wrong + 1}.norm.bias")
    assert {f"{wrong + 1}.up", f"{wrong + 1}.down"} <= set(found.right)
    assert f"{wrong}.up" not in found.right
    assert found.use is not None
    assert "h = Copy.apply(self.norm(x), self.summed)" in str(verdict)
    assert str(verdict).startswith(f"wrong numbers: gradient of {found.wrong.key.name} in step 1 ")


@pytest.mark.processes
def test_replicas_whose_sum_is_missing_are_told_of_no_place_in_backward():
    def unsynchronised(mesh: Any) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(8, 4).chunk(mesh.size())[mesh.get_local_rank()]).square().mean().backward()
        optimizer.step()

    verdict = verify(unsynchronised, {"dp": 2}, strict=False)
    assert verdict.numbers.disagreements
    assert verdict.numbers.backward is None


def gradient(name: str, order: int | None, nth: int = 1) -> tuple[Key, Record]:
    key = Key("gradient", name, None, nth)
    return key, Record(key, UNTYPED, "", None, use=None if order is None else Use(order, None))


def wrong(key: Key) -> ValueDisagreement:
    return ValueDisagreement(key, "", Against.ALONE, 0, (0,), (), (), None, "")


def test_the_last_that_is_used_comes_first_and_only_what_is_used_behind_it_is_right():
    run = dict([gradient("a", 1), gradient("b", 2), gradient("c", 3), gradient("d", None)])
    judged = [(key, wrong(key) if key.name in "abd" else "equal") for key in run]
    found = first_in_backward(judged, [run])
    assert found is not None
    assert (found.wrong.key.name, found.right) == ("b", ("c",))


def test_of_stages_the_last_that_has_a_wrong_gradient_is_nearest_to_the_loss():
    runs = [dict([gradient("a", 9)]), dict([gradient("b", 1)]), dict([gradient("c", 1)])]
    judged = [(key, "equal" if key.name == "c" else wrong(key)) for run in runs for key in run]
    found = first_in_backward(judged, runs)
    assert found is not None
    assert found.wrong.key.name == "b"


def test_nothing_is_said_without_uses_nor_where_nothing_is_wrong():
    run = dict([gradient("a", None), gradient("b", 1)])
    assert first_in_backward([(key, wrong(key)) for key in run if key.name == "a"], [run]) is None
    assert first_in_backward([(key, "equal") for key in run], [run]) is None
