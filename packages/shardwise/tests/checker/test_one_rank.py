"""What only one rank has: a sum that was reduced to it, and a mean over as many tokens as it does not ignore."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.worlds.world import InProcessWorld

from .on_ranks import RANKS, drawn, shard

pytestmark = pytest.mark.processes

X = drawn(RANKS * 2, 3)


def told(program: Callable[[], Tensor], *, local: bool) -> list[tuple[RunResult, Tensor]]:
    def on_a_rank() -> tuple[RunResult, Tensor]:
        collector = Collector()
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh), checking(local=local, collect=collector):
            made = program()
        return collector.result(), made.detach()

    return InProcessWorld(RANKS).run(on_a_rank)


def pending() -> Tensor:
    return spmd.assert_type(X.chunk(RANKS)[dist.get_rank()].sum(0), {"tp": P})


def through(to: int, of: int, between: Callable[[Tensor], object] = lambda x: None) -> Callable[[], Tensor]:
    def program() -> Tensor:
        x = pending()
        dist.reduce(x, to)
        between(x)
        dist.broadcast(x, of)
        return x

    return program


def by_group_ranks() -> Tensor:
    x = pending()
    dist.reduce(x, group_dst=1)
    dist.broadcast(x, group_src=0)
    return x


BROADCASTS: list[tuple[str, Callable[[], Tensor], bool]] = [
    ("from where it is", through(0, 0), True),
    ("from the last", through(1, 1), True),
    ("from another", through(0, 1), False),
    ("from the first", through(1, 0), False),
    ("by ranks of the group", by_group_ranks, False),
]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(("program", "right"), [pytest.param(*case[1:], id=case[0]) for case in BROADCASTS])
def test_a_sum_is_broadcast_from_the_rank_that_has_it(program: Callable[[], Tensor], right: bool, local: bool) -> None:
    for result, made in told(program, local=local):
        assert torch.allclose(made, X.sum(0)) == right
        assert [finding.code for finding in result.findings] == ([] if right else ["SW201"])


def test_what_has_been_written_since_is_another_value() -> None:
    for result, _ in told(through(0, 1, lambda x: x.fill_(1.0)), local=True):
        assert not result.findings


def mean_of(targets: Tensor) -> Callable[[], Tensor]:
    def program() -> Tensor:
        loss = F.cross_entropy(shard(X), shard(targets))
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss

    return program


def test_a_mean_over_targets_of_which_some_are_ignored_is_of_no_known_type() -> None:
    every = torch.arange(RANKS * 2) % 3
    some = every.clone()
    some[0] = -100
    for result, made in told(mean_of(every), local=False):
        torch.testing.assert_close(made, F.cross_entropy(X, every))
        assert not result.findings
        assert not result.lost
    (first, made), *_ = told(mean_of(some), local=False)
    assert not torch.allclose(made, F.cross_entropy(X, some))
    assert any("ignored" in lost.what for lost in first.lost)
