"""Raw exchanges of pieces, globally: what they leave is a shard where that is known, and else a type that is lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, V
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import InProcessWorld

from .helpers import refused
from .on_ranks import RANKS, addend, drawn, outcomes, shard

FULL = drawn(8, 4, 6)


def by_list() -> Any:
    """Ulysses: from a piece of the sequence (dim 0) with all heads (dim 1) to all of it with some of them."""
    sent = [piece.contiguous() for piece in shard(FULL).chunk(RANKS, 1)]
    received = [torch.empty_like(piece) for piece in sent]
    dist.all_to_all(received, sent)
    return torch.cat(received, 0)


def by_packing() -> Any:
    sent = torch.cat(shard(FULL).chunk(RANKS, 1), 0).contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    return received


def by_transposing() -> Any:
    x = shard(FULL)
    sent = x.view(x.shape[0], RANKS, 2, 6).transpose(0, 1).contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    return received.reshape(8, 2, 6)


@pytest.mark.parametrize("exchange", [by_list, by_packing, by_transposing])
def test_sequence_parallel_attention_by_raw_exchanges_is_no_finding(exchange: Any) -> None:
    def program() -> Any:
        return exchange().softmax(0)

    ranks = [found for found in outcomes(program, local=False) if not isinstance(found, str)]
    assert len(ranks) == RANKS, outcomes(program, local=False)
    torch.testing.assert_close(torch.cat([found[0].value for found in ranks], 1), FULL.softmax(0))
    known = exchange is by_list  # a list says which piece went where
    assert all(place.is_unknown is not known for found in ranks for place in found[0].type.placements)


def test_what_is_packed_for_an_exchange_is_used_for_nothing_else(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = spmd.assert_type(torch.randn(2, 8), {"tp": spmd.S(0)})
        packed = torch.cat(x.chunk(4, 1), 0)
        with refused("SW408", "packed"):
            packed + 1
        with refused("SW405", "cat"):
            torch.cat(x.chunk(4, 1)[::-1], 0)


def test_a_type_that_an_exchange_loses_is_listed(tp_mesh: Any) -> None:
    collector = Collector()
    with checking(local=False, collect=collector):
        x = spmd.assert_type(torch.randn(2, 8), {"tp": spmd.S(0)})
        received = [torch.empty(2, 2) for _ in range(4)]
        dist.all_to_all(received, list(x.chunk(4, 1))[::-1])
    assert [noted.what for noted in collector.result().lost] == [
        "which part of the whole all_to_all leaves on each rank"
    ]


def test_zeros_that_an_untyped_collective_has_written_are_zeros_no_more(tp_mesh: Any) -> None:
    with checking(strict=False):
        received = torch.zeros(4)
        dist.reduce_scatter_tensor(received, torch.randn(16))
        pending = spmd.assert_type(torch.randn(4), {"tp": spmd.P})
        assert spmd.typeof(pending + received).type.local == {}


def test_a_gradient_that_nobody_has_typed_has_no_scale_after_it_was_gathered(tp_mesh: Any) -> None:
    with checking(strict=False):
        w = torch.nn.Parameter(torch.ones(4, 2, dtype=torch.bfloat16))
        (torch.ones(3, 4, dtype=torch.bfloat16) @ w).sum().backward()
        assert w.grad is not None
        own = torch.empty(w.numel() // 4, dtype=w.dtype)
        dist.reduce_scatter_tensor(own, w.grad.view(-1))
        dist.all_gather_into_tensor(w.grad.view(-1), own)
        w.grad /= dist.get_world_size()
        assert spmd.typeof(w.grad).type.exponent(spmd.normalize_axis("tp")) is None
        torch.optim.SGD([w], lr=0.1).step()


def ring(x: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks, by sending what each has on to its neighbour."""
    total, passed, here = x.clone(), x.clone(), dist.get_rank()
    for _ in range(RANKS - 1):
        arriving = torch.empty_like(passed)
        sending = dist.P2POp(dist.isend, passed, (here + 1) % RANKS)
        receiving = dist.P2POp(dist.irecv, arriving, (here - 1) % RANKS)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()
        total = total + arriving
        passed = arriving
    return total


@pytest.mark.parametrize("local", [True, False])
def test_a_ring_by_hand_sums_addends_and_is_no_finding(local: bool) -> None:
    full = drawn(4, 3)
    for found in outcomes(lambda: ring(addend(full)), local=local):
        assert not isinstance(found, str), found
        torch.testing.assert_close(found[0].value, full)
        assert not found[0].type.local, "what a neighbour has sent has no type"
    assert outcomes(lambda: ring(addend(full).relu()), local=local) == ["SW112"] * RANKS


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX])
def test_what_all_ranks_have_reduced_is_equal_though_nothing_was_known_of_it(local: bool, op: Any) -> None:
    """So low-rank compression of a gradient, by a matrix that nobody has typed, is summed and no finding."""
    basis, full = drawn(6, 2, seed=5), drawn(4, 6)

    def rank() -> tuple[torch.Tensor, Any, torch.Tensor]:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh), checking(strict=False, local=local, collect=Collector()):
            own = addend(full)
            p = own @ basis.clone()
            assert [place.is_unknown for place in spmd.typeof(p).type.placements] == [True]
            dist.all_reduce(p, op=op)
            q = own.T @ p
            return p, spmd.typeof(p).type, q if spmd.typeof(q).type.partial_axes else torch.zeros(())

    found = InProcessWorld(RANKS).run(rank)
    for p, type, _ in found:
        torch.testing.assert_close(p, found[0][0])
        assert [place.is_equal for place in type.placements] == [True]
        assert type.exponent(type.axes[0]) is None, "it may have been equal before"
    if op == dist.ReduceOp.SUM:
        torch.testing.assert_close(found[0][0], full @ basis)
        torch.testing.assert_close(sum(q for _, _, q in found), full.T @ full @ basis)


@pytest.mark.parametrize("own", ["its own piece", "another"])
def test_gathered_pieces_of_which_the_own_has_a_gradient_are_equal_everywhere(tp_mesh: Any, own: str) -> None:
    """Local types, which do not say which dim is cut: equal values, and a gradient for the own piece alone."""
    with typecheck(local=True):
        x = spmd.assert_type(torch.ones(4, 3, requires_grad=True), {"tp": V})
        pieces = [torch.empty(4, 3) for _ in range(4)]
        dist.all_gather(pieces, x.detach())
        pieces[dist.get_rank()] = x if own == "its own piece" else x * 2
        joined = torch.cat(pieces)
        assert spmd.get_local_type(joined) == {spmd.normalize_axis("tp"): I if own == "its own piece" else V}


def gathered_list(gradient: torch.Tensor) -> torch.Tensor:
    pieces = [torch.empty_like(gradient) for _ in range(RANKS)]
    dist.all_gather(pieces, gradient)
    return torch.stack(pieces)


def gathered_tensor(gradient: torch.Tensor) -> torch.Tensor:
    made = torch.empty(RANKS * 4, 4)
    dist.all_gather_into_tensor(made, gradient)
    return made.view(RANKS, 4, 4)


def gathered_functionally(gradient: torch.Tensor) -> torch.Tensor:
    return functional.all_gather_tensor(gradient, 0, dist.group.WORLD).view(RANKS, 4, 4)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("gather", [gathered_list, gathered_tensor, gathered_functionally])
@pytest.mark.parametrize("put", [lambda x: x.sum(0), lambda x: x[0], lambda x: x.amax(0)], ids=["sum", "first", "max"])
def test_the_addends_of_a_gradient_that_are_handed_to_all_are_listed(gather: Any, put: Any, local: bool) -> None:
    """Whether they are put together to their sum is not followed: nothing is claimed of what a step takes."""

    def on_a_rank() -> list[str]:
        collector, mesh = Collector(), init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh), checking(local=local, collect=collector):
            w = spmd.assert_type(torch.ones(4, 4, requires_grad=True), {"tp": spmd.R})
            x = spmd.assert_type(torch.ones(2, 4), {"tp": V if local else spmd.S(0)})
            spmd.reinterpret((x @ w).sum(), "tp", src=V, dst=spmd.P).backward() if local else (x @ w).sum().backward()
            w.grad = put(gather(w.grad))
            torch.optim.SGD([w], lr=0.1).step()
        assert not collector.result().findings
        return [lost.what for lost in collector.result().lost]

    for lost in InProcessWorld(RANKS).run(on_a_rank):
        assert any("the addends of a gradient that all_gather" in what for what in lost), lost
