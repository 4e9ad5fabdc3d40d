"""Are ranks that draw weights of their own compared with one rank that starts from them, and are bugs in them found?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardwise.diagnostics.result import ExitCode
from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.initial_weights import put_together
from shardwise.verifier.other_ways import STARTED
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.record import RankRun
from shardwise.verifier.records.subject import Function
from shardwise.verifier.run import verify, verify_subject

DRAWN = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
OTHER = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


class Reduce(torch.autograd.Function):
    """Sum forward, pass on backward; or the other way round."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, forward: bool, backward: bool) -> torch.Tensor:
        ctx.group, ctx.backward = group, backward
        x = x.clone()
        if forward:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        gradient = gradient.clone()
        if ctx.backward:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None, None, None


class Block(nn.Module):
    """A feed-forward layer between norms, whose halves every rank draws for itself."""

    def __init__(self, group: Any, seed: int, copies: bool) -> None:
        super().__init__()
        self.group, self.copies = group, copies
        width = 16 // group.size()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(8)
        drawing = torch.Generator().manual_seed(seed)
        self.up = nn.Parameter(0.3 * torch.randn(width, 8, generator=drawing))
        self.down = nn.Parameter(0.3 * torch.randn(8, width, generator=drawing))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = Reduce.apply(self.norm(x), self.group, False, self.copies)
        return Reduce.apply((x @ self.up.T).relu() @ self.down.T, self.group, True, False)


def tensor_parallel(
    mesh: Any, *, alike: bool = False, copies: bool = True, kept: bool = True, factor: float = 1.0
) -> None:
    """Two steps of a block of which each rank of tp draws its shard; over dp they are replicas."""
    tp, dp = mesh.get_group("tp"), mesh.get_group("dp")
    block = Block(tp, 5 if alike else 5 + dist.get_rank(tp), copies)
    stepped = list(block.parameters()) if kept else [nn.Parameter(one.detach().clone()) for one in block.parameters()]
    optimizer = torch.optim.SGD(stepped, lr=0.01)
    data = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(1))
    for batch in data:
        loss = block(batch.chunk(dp.size())[dist.get_rank(dp)]).square().mean() * (factor if tp.size() > 1 else 1.0)
        loss.backward()
        for own, parameter in zip(stepped, block.parameters(), strict=True):
            dist.all_reduce(parameter.grad, group=dp)
            own.grad = parameter.grad / dp.size()
        optimizer.step()
        with torch.no_grad():
            for own, parameter in zip(stepped, block.parameters(), strict=True):
                parameter.copy_(own)
        block.zero_grad()


class Layers(nn.Module):
    """Some of the layers of a model, by their numbers in all of it."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(number): nn.Linear(8, 8) for number in numbers})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def pipeline(mesh: Any, *, factor: float = 1.0, anew: bool = False) -> None:
    """A step of two layers, each on a stage that is seeded by its number, and may count its layers ``anew``."""
    stage, stages = mesh.get_local_rank("pp"), mesh["pp"].size()
    torch.manual_seed(7 + stage)
    layers = Layers(range(2) if stages == 1 else [0 if anew else stage])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    if stage:
        x = torch.empty(4, 8).requires_grad_()
        dist.recv(x.data, src=0)
    y = layers(x)
    if stage + 1 < stages:
        dist.send(y.detach(), dst=1)
        gradient = torch.empty(4, 8)
        dist.recv(gradient, src=1)
        y.backward(gradient)
    else:
        (y.square().mean() * (factor if stages > 1 else 1.0)).backward()
        if stage and x.grad is not None:
            dist.send(x.grad, dst=0)
    optimizer.step()


def run(value: torch.Tensor, name: str = "up") -> RankRun:
    return RankRun(entries=[Record(Key("parameter", name, None), UNTYPED, "", value)])


@pytest.mark.parametrize(
    ("pieces", "alone", "whole", "certain"),
    [
        ([DRAWN, DRAWN], OTHER, DRAWN, True),
        ([DRAWN[:2], DRAWN[2:]], OTHER, DRAWN, False),
        ([DRAWN[:, :3], DRAWN[:, 3:]], OTHER, DRAWN, False),
        ([DRAWN[:2], DRAWN[2:]], DRAWN, None, False),
        ([DRAWN, OTHER], DRAWN + 1, None, False),
        ([DRAWN[:2], DRAWN[:2]], OTHER, None, False),
        ([DRAWN[:2] * 4, DRAWN[2:] * 4], OTHER, None, False),
        ([DRAWN[:2, :3], DRAWN[2:, 3:]], OTHER, None, False),
        ([DRAWN, DRAWN], torch.ones(4, 6), None, False),
    ],
    ids=["whole", "rows", "columns", "its own", "no replicas", "alike", "larger", "two dims", "constant on one"],
)
def test_weights_are_put_together_only_where_nothing_is_left_open(pieces, alone, whole, certain):
    found = put_together([run(piece.clone()) for piece in pieces], run(alone), {"tp": 2})
    assert (found is None) == (whole is None)
    if found is not None:
        assert torch.equal(found.values["up"], whole)
        assert found.certain is certain


def test_a_parameter_that_only_one_of_the_runs_has_leaves_it_open():
    assert put_together([run(DRAWN), run(DRAWN)], run(OTHER, "down"), {"tp": 2}) is None


def test_each_stage_has_parameters_of_its_own():
    ranks = [run(DRAWN, "0"), run(OTHER, "1")]
    alone = RankRun(entries=[*run(OTHER, "0").entries, *run(OTHER, "1").entries])
    found = put_together(ranks, alone, {"pp": 2})
    assert found is not None
    assert found.certain
    assert torch.equal(found.values["0"], DRAWN)
    assert torch.equal(found.values["1"], OTHER)


def test_layers_of_stages_and_experts_of_ranks_that_count_anew_get_the_numbers_of_one_rank():
    generator = torch.Generator().manual_seed(3)
    names = [f"layers.{layer}.experts.{expert}" for layer in (0, 1) for expert in (0, 1)]
    drawn = {name: torch.randn(4, generator=generator) for name in names}
    ranks = [run(drawn[name], "layers.0.experts.0") for name in names]
    alone = RankRun(entries=[run(value + 1, name).entries[0] for name, value in drawn.items()])
    found = put_together(ranks, alone, {"pp": 2, "ep": 2})
    assert found is not None
    assert not found.certain
    assert all(torch.equal(found.values[name], value) for name, value in drawn.items())


@pytest.mark.slow
@pytest.mark.processes
def test_shards_that_every_rank_draws_for_itself_are_compared():
    verdict = verify(tensor_parallel, {"dp": 2, "tp": 2}, strict=False, narrow=False)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert verdict.numbers.gradients == 2 * 4
    assert STARTED in verdict.numbers.notes


@pytest.mark.processes
def test_a_backward_that_sums_nothing_is_not_clean_behind_them():
    verdict = verify(lambda mesh: tensor_parallel(mesh, copies=False), {"dp": 1, "tp": 2}, strict=False, narrow=False)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)


@pytest.mark.processes
def test_shards_that_are_seeded_alike_leave_the_runs_apart():
    verdict = verify(lambda mesh: tensor_parallel(mesh, alike=True), {"dp": 1, "tp": 2}, strict=False, narrow=False)
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)


@pytest.mark.slow
@pytest.mark.processes
def test_what_disagrees_is_a_question_where_shards_may_lie_otherwise():
    program = Function(lambda mesh: tensor_parallel(mesh, factor=2.0))
    verdict = verify_subject(program, {"dp": 1, "tp": 2}, VerifyOptions(strict=False, narrow=False, feed=False))
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert "where one rank starts from the ranks' weights" in str(verdict)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(("feed", "code"), [(False, ExitCode.INCONCLUSIVE), (None, ExitCode.CLEAN)])
def test_a_program_that_trains_copies_made_before_keeps_no_weights_but_draws(feed, code):
    options = VerifyOptions(strict=False, narrow=False, feed=feed)
    program = Function(lambda mesh: tensor_parallel(mesh, kept=False))
    verdict = verify_subject(program, {"dp": 1, "tp": 2}, options)
    assert verdict.exit_code is code, str(verdict)


@pytest.mark.processes
def test_stages_that_count_their_layers_anew_are_compared():
    verdict = verify(lambda mesh: pipeline(mesh, anew=True), {"pp": 2}, strict=False, narrow=False)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert verdict.numbers.gradients == 2


@pytest.mark.processes
@pytest.mark.parametrize(("factor", "code"), [(1.0, ExitCode.CLEAN), (2.0, ExitCode.FINDINGS)])
def test_stages_that_draw_for_themselves_are_compared(factor, code):
    verdict = verify(lambda mesh: pipeline(mesh, factor=factor), {"pp": 2}, strict=False, narrow=False)
    assert verdict.exit_code is code, str(verdict)
    assert verdict.numbers.gradients == (4 if code is ExitCode.CLEAN else 0)
