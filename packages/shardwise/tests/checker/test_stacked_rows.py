"""Gathers along the last dim as Megatron makes them: behind one another along dim 0, taken apart, and joined."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import S
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.worlds.world import FakeWorld, InProcessWorld

RANKS = 2
FULL = torch.arange(32.0).reshape(4, 8)
Join = Callable[[Tensor], Tensor]
WAYS: dict[str, tuple[Join, str]] = {
    "chunks": (lambda buffer: torch.cat(buffer.chunk(RANKS, 0), dim=-1), ""),
    "splits": (lambda buffer: torch.cat(buffer.split(4), 1), ""),
    "each worked on": (lambda buffer: torch.cat([piece * 2 for piece in buffer.chunk(RANKS)], 1) / 2, ""),
    "not taken apart": (lambda buffer: buffer, "SW212"),
    "cut along the other dim": (lambda buffer: torch.cat(buffer.chunk(RANKS, 1), 0), "SW212"),
    "joined as they lay": (lambda buffer: torch.cat(buffer.chunk(RANKS, 0), 0), "SW223"),
    "in another order": (lambda buffer: torch.cat(buffer.chunk(RANKS, 0)[::-1], 1), "SW223"),
}


def gathered(join: Join, steps: int = 2) -> Tensor:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    with spmd.set_current_mesh(mesh):
        x = spmd.assert_type(FULL.chunk(RANKS, 1)[dist.get_rank()].contiguous(), {"tp": S(1)})
        for _ in range(steps):
            buffer = torch.empty(RANKS * 4, 4)
            dist.all_gather_into_tensor(buffer, x)
            whole = join(buffer)
        return whole


def checked(join: Join) -> RunResult:
    collector = Collector()

    def program() -> None:
        with checking(collect=collector, local=False):
            gathered(join)

    FakeWorld(RANKS, 1).run(program)
    return collector.result()


@pytest.mark.parametrize("name", WAYS)
def test_pieces_that_are_joined_along_their_own_dim_are_the_whole(name: str) -> None:
    join, code = WAYS[name]
    ranks = InProcessWorld(RANKS).run(lambda: gathered(join))
    assert all(whole.shape == FULL.shape and torch.equal(whole, FULL) for whole in ranks) is not bool(code)
    result = checked(join)
    assert {finding.code for finding in result.findings} == ({code} if code else set())
    lost = {one.what for one in result.lost}
    taken_apart = code != "SW212"
    assert lost == (
        {"the type of all that all_gather_into_tensor has put together along another dim"} if taken_apart else set()
    )


@pytest.mark.parametrize("taken", [lambda whole, piece: whole + piece, lambda whole, piece: whole.softmax(0)])
def test_what_has_been_put_together_along_another_dim_is_told_once(taken: Callable[[Tensor, Tensor], Tensor]) -> None:
    def by_hand(x: Tensor) -> Tensor:
        buffer = torch.empty(RANKS * 4, 4)
        dist.all_gather_into_tensor(buffer, x)
        return buffer

    for gather in (lambda x: spmd.all_gather(x, "tp", src=S(0), dst=spmd.R), by_hand):
        collector = Collector()

        def program(gather: Callable[[Tensor], Tensor] = gather, collector: Collector = collector) -> None:
            mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
            with checking(collect=collector, local=False), spmd.set_current_mesh(mesh):
                x = spmd.assert_type(torch.randn(4, 4), {"tp": S(1)})
                piece = spmd.assert_type(torch.randn(8, 4), {"tp": S(1)})
                taken(gather(x), piece)

        FakeWorld(RANKS, 1).run(program)
        assert [finding.code for finding in collector.result().findings] == ["SW212"]
