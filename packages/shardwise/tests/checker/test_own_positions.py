"""Lookups of a vocabulary-parallel table: a sum over ranks needs the rows that are no rank's own to be zero.

Every way runs twice: with numbers on ranks that share a process, compared with one device, and under the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import FakeWorld, InProcessWorld

RANKS, ROWS, WIDTH = 2, 12, 3


@dataclass
class Part:
    """What a rank has: its rows of the table and its columns of the logits, and where the positions lie in them."""

    ids: Tensor
    table: Tensor
    logits: Tensor
    first: int

    @property
    def outside(self) -> Tensor:
        return (self.ids < self.first) | (self.ids >= self.first + self.table.shape[0])

    @property
    def clipped(self) -> Tensor:
        return (self.ids - self.first).masked_fill(self.outside, 0)

    @property
    def clamped(self) -> Tensor:
        return (self.ids - self.first).clamp(0, self.table.shape[0] - 1)


def summed(x: Tensor) -> Tensor:
    return spmd.all_reduce(x, "tp", src=P, dst=R)


def reinterpreted(x: Tensor) -> Tensor:
    with spmd.local():
        return spmd.reinterpret(x, "tp", src=V, dst=P)


def summed_raw(x: Tensor) -> Tensor:
    dist.all_reduce(x)
    return x


def zeroed(x: Tensor, where: Tensor) -> Tensor:
    x[where] = 0.0
    return x


def zeroed_view(x: Tensor, where: Tensor) -> Tensor:
    x.view(-1, WIDTH)[where, :] = 0.0
    return x


def set_aside(part: Part) -> Tensor:
    moved = part.ids - part.first
    moved[part.outside] = 0
    return moved


Way = Callable[[Part], Tensor]
EMBEDDING: dict[str, tuple[Way, bool]] = {
    "masked_fill": (lambda p: summed(F.embedding(p.clipped, p.table).masked_fill(p.outside[:, None], 0.0)), True),
    "where": (lambda p: summed(torch.where(p.outside[:, None], 0.0, p.table[p.clipped])), True),
    "times": (lambda p: summed(p.table[p.clamped] * ~p.outside[:, None]), True),
    "written": (lambda p: summed(zeroed(F.embedding(p.clipped, p.table), p.outside)), True),
    "written through a view": (lambda p: summed(zeroed_view(F.embedding(p.clipped, p.table), p.outside)), True),
    "in place": (lambda p: summed_raw(p.table[p.clipped].mul_((~p.outside)[:, None])), True),
    "one of all": (
        lambda p: summed((F.one_hot(p.clamped, 6) * ~p.outside[:, None]).float() @ p.table),
        True,
    ),
    "embedding": (lambda p: summed(F.embedding(p.clipped, p.table)), False),
    "indexed": (lambda p: summed(p.table[p.clamped]), False),
    "selected": (lambda p: summed(p.table.index_select(0, p.clipped)), False),
    "positions set in place": (lambda p: summed(p.table[set_aside(p)]), False),
    "computed with": (lambda p: summed(p.table[p.clipped].view(2, -1, WIDTH) * 0.5).flatten(0, 1) * 2, False),
    "raw": (lambda p: summed_raw(p.table[p.clipped] + 0), False),
    "reinterpreted": (lambda p: summed(reinterpreted(p.table[p.clipped])), False),
    "masked, reinterpreted": (
        lambda p: summed(reinterpreted(p.table[p.clipped].masked_fill(p.outside[:, None], 0.0))),
        True,
    ),
}
LOGITS: dict[str, tuple[Way, bool]] = {
    "masked_fill": (lambda p: summed(p.logits.gather(1, p.clipped[:, None])[:, 0].masked_fill(p.outside, 0.0)), True),
    "times": (lambda p: summed(p.logits.take_along_dim(p.clamped[:, None], 1)[:, 0] * ~p.outside), True),
    "gathered": (lambda p: summed(p.logits.gather(1, p.clipped[:, None]).squeeze(1)), False),
    "taken": (lambda p: summed(p.logits.take_along_dim(p.clamped[:, None], 1)).flatten(), False),
}
CASES = [*((f"embedding, {name}", *way) for name, way in EMBEDDING.items())]
CASES += [*((f"logits, {name}", *way) for name, way in LOGITS.items())]


def run(way: Way) -> tuple[Tensor, Tensor, Tensor]:
    """What the way gives, and what one device has: the rows, and the logits at the positions."""
    ranks, draw = dist.get_world_size(), torch.Generator().manual_seed(3)
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
    rank = mesh.get_local_rank("tp")
    ids = torch.randint(0, ROWS, (8,), generator=draw)
    table, logits = torch.randn(ROWS, WIDTH, generator=draw), torch.randn(8, ROWS, generator=draw)
    with spmd.set_current_mesh(mesh), torch.no_grad():
        own = spmd.assert_type(table.chunk(ranks)[dist.get_rank()].clone(), {"tp": S(0)})
        columns = spmd.assert_type(logits.chunk(ranks, 1)[dist.get_rank()].clone(), {"tp": S(1)})
        rows, picked = table[ids], logits.gather(1, ids[:, None])[:, 0]
        part = Part(spmd.assert_type(ids, {"tp": R}), own, columns, rank * (ROWS // ranks))
        return way(part), rows, picked


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(("name", "way", "right"), CASES, ids=[case[0] for case in CASES])
def test_rows_of_others_are_set_to_zero_or_counted(name: str, way: Way, right: bool) -> None:
    for made, rows, picked in InProcessWorld(RANKS).run(lambda: run(way)):
        meant = picked if name.startswith("logits") else rows
        assert torch.allclose(made, meant) is right
    for local in (True, False):
        for _ in range(2):  # what was judged before is remembered
            collector = Collector()

            def program(local: bool = local, collector: Collector = collector) -> None:
                with checking(collect=collector, local=local):
                    run(way)

            FakeWorld(RANKS, 1).run(program)
            assert {finding.code for finding in collector.result().findings} == (set() if right else {"SW201"})


def test_the_message_says_where_the_positions_were_moved() -> None:
    def program() -> None:
        with checking(collect=collector):
            run(EMBEDDING["embedding"][0])

    collector = Collector()
    FakeWorld(RANKS, 0).run(program)
    (finding,) = collector.result().findings
    text = str(finding)
    assert "adds up what every rank of tp has looked up in its own part for the positions of all" in text
    assert "positions count from the rank's own part here" in text
    assert "self.ids - self.first" in text


def gathered(x: Tensor) -> Tensor:
    pieces = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(pieces, x.contiguous())
    return torch.stack(pieces)


def by_gathering(logits: Tensor) -> Tensor:
    best, at = logits.max(1)
    at = at + dist.get_rank() * logits.shape[1]
    return gathered(at).gather(0, gathered(best).argmax(0)[None])[0]


def by_comparing(logits: Tensor) -> Tensor:
    best, at = logits.max(1)
    of_all = best.clone()
    dist.all_reduce(of_all, op=dist.ReduceOp.MAX)
    at = torch.where(best == of_all, at + dist.get_rank() * logits.shape[1], 1000)
    dist.all_reduce(at, op=dist.ReduceOp.MIN)
    return at


def by_comparing_what_argmax_finds(logits: Tensor) -> Tensor:
    of_all = logits.amax(1)
    dist.all_reduce(of_all, op=dist.ReduceOp.MAX)
    at = torch.where(logits.amax(1) >= of_all, logits.argmax(1) + dist.get_rank() * logits.shape[1], 1000)
    dist.all_reduce(at, op=dist.ReduceOp.MIN)
    return at


def in_a_local_region(logits: Tensor) -> Tensor:
    with spmd.local():
        best, at = logits.max(1)
        at = at + dist.get_rank() * logits.shape[1]
        best, at = (spmd.all_gather(x, "tp", src=V, dst=R) for x in (best, at))
        return at.gather(0, best.argmax(0)[None])[0]


def reduced(x: Tensor, op: dist.ReduceOp = dist.ReduceOp.MAX) -> Tensor:
    x = x.clone()
    dist.all_reduce(x, op=op)
    return x


def named_destination(logits: Tensor) -> Tensor:
    best, at = torch.empty(8), torch.empty(8, dtype=torch.long)
    torch.max(logits, 1, out=(best, at))
    return reduced(at)


ARGMAX: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "gathered": (by_gathering, ""),
    "compared": (by_comparing, ""),
    "compared, argmax": (by_comparing_what_argmax_finds, ""),
    "local region": (in_a_local_region, ""),
    "reduced": (lambda x: reduced(x.max(1)[1]), "SW406"),
    "reduced as float": (lambda x: reduced(x.max(dim=1).indices[:, None].float())[:, 0].long(), "SW406"),
    "summed": (lambda x: reduced(x.min(1)[1], dist.ReduceOp.SUM), "SW406"),
    "typed": (lambda x: spmd.all_reduce(x.max(1)[1], "tp", src=V, dst=R), "SW406"),
    "out": (named_destination, "SW406"),
}


def best_of_parts(way: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """What the way gives, and where one device has the largest of each row."""
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    logits = torch.randn(8, ROWS, generator=torch.Generator().manual_seed(5))
    with spmd.set_current_mesh(mesh):
        own = spmd.assert_type(logits.chunk(RANKS, 1)[dist.get_rank()].clone(), {"tp": S(1)})
        return way(own), logits.argmax(1)


@pytest.mark.parametrize(("way", "code"), ARGMAX.values(), ids=ARGMAX)
def test_positions_of_the_largest_count_from_the_start_of_a_shard(way: Callable[[Tensor], Tensor], code: str) -> None:
    for made, meant in InProcessWorld(RANKS).run(lambda: best_of_parts(way)):
        assert torch.equal(made, meant) is (not code)
    for _ in range(2):  # what was judged before is remembered
        collector = Collector()

        def program(collector: Collector = collector) -> None:
            with checking(collect=collector, local=False, strict=False):
                best_of_parts(way)

        FakeWorld(RANKS, 1).run(program)
        assert {finding.code for finding in collector.result().findings} == ({code} if code else set())
