"""Micro-batches of a batch that is sharded: a loop over all of them passes, and computes what one device does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.types import SpmdTypeError
from shardwise.worlds.world import InProcessWorld

from .on_ranks import RANKS, drawn, shard, whole

pytestmark = pytest.mark.processes

X, T, W = drawn(8 * RANKS, 4), drawn(8 * RANKS, 3, seed=1), drawn(3, 4, seed=2)
Parts = Callable[[Tensor], list[Tensor]]


def order() -> Tensor:
    return torch.tensor([5, 0, 3, 7, 1, 6, 2, 4])


def loss_of(w: Tensor, x: Tensor, t: Tensor) -> Tensor:
    return (x @ w.T - t).square().mean()


def summed(w: Tensor, op: Any = dist.ReduceOp.AVG) -> Tensor:
    assert w.grad is not None
    dist.all_reduce(w.grad, op=op)
    torch.optim.SGD([w], lr=0.0).step()
    return w.grad


def loop(parts: Parts, op: Any = dist.ReduceOp.AVG) -> Callable[[], Tensor]:
    def program() -> Tensor:
        w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
        xs, ts = parts(x), parts(t)
        for one, other in zip(xs, ts, strict=True):
            (loss_of(w, one, other) / len(xs)).backward()
        return summed(w, op)

    return program


def last_apart() -> Tensor:
    """The last micro-batch has a line of its own, as under DDP's ``no_sync``."""
    w, x, t = whole(W.clone().requires_grad_()), shard(X).chunk(4), shard(T).chunk(4)
    for at in range(4):
        if at < 3:
            (loss_of(w, x[at], t[at]) / 4).backward()
        else:
            (loss_of(w, x[at], t[at]) / 4).backward()
    return summed(w)


def cut_apart() -> Tensor:
    """So has its cut."""
    w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
    for at in range(4):
        rows = slice(at * 2, (at + 1) * 2)
        if at < 3:
            (loss_of(w, x[rows], t[rows]) / 4).backward()
        else:
            (loss_of(w, x[rows], t[rows]) / 4).backward()
    return summed(w)


@spmd.register_autograd_function
class Handed(torch.autograd.Function):
    """As DistributedDataParallel hands on what its module has made, where it looks for unused parameters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]

    @staticmethod
    def typecheck_forward(x: Tensor) -> Tensor:
        made = Handed.apply(x)  # type: ignore[no-untyped-call]
        spmd.assert_type_like(made, x)
        assert isinstance(made, Tensor)
        return made


def through_a_function() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X).split(2), shard(T).split(2)
    for one, other in zip(x, t, strict=True):
        ((Handed.apply(one @ w.T) - other).square().mean() / 4).backward()  # type: ignore[no-untyped-call]
    return summed(w)


def put_together() -> Tensor:
    """Activations in chunks, which are one tensor again afterwards."""
    w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
    y = torch.cat([part @ w.T for part in x.split(2)])
    (y - t).square().mean().backward()
    return summed(w)


RIGHT = {
    "split": loop(lambda x: list(x.split(2))),
    "torch.split of the last dim but one": loop(lambda x: list(torch.split(x, 4, dim=-2))),
    "chunk": loop(lambda x: list(x.chunk(4, 0))),
    "tensor_split": loop(lambda x: list(x.tensor_split(2))),
    "slices": loop(lambda x: [x[at * 2 : (at + 1) * 2] for at in range(4)]),
    "every fourth row": loop(lambda x: [x[at::4] for at in range(4)]),
    "every other row, in halves": loop(lambda x: [x[at:stop:2] for at, stop in ((0, 4), (1, 4), (4, 8), (5, 8))]),
    "slices of all dims": loop(lambda x: [x[at : at + 2, :] for at in (0, 2, 4, 6)]),
    "narrow": loop(lambda x: [x.narrow(0, at, 4) for at in (0, 4)]),
    "rows in an order of their own": loop(lambda x: [x[rows] for rows in order().split(2)]),
    "rows that are selected": loop(lambda x: [x.index_select(0, rows) for rows in order().chunk(2)]),
    "rows of all columns": loop(lambda x: [x[rows, :] for rows in order().split(4)]),
    "through a function": through_a_function,
    "the last on another line": last_apart,
    "the last is cut on another line": cut_apart,
    "put together": put_together,
}


def first_only() -> Tensor:
    w = whole(W.clone().requires_grad_())
    loss_of(w, shard(X)[:2], shard(T)[:2]).backward()
    return summed(w)


def one_left_out() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X).split(2), shard(T).split(2)
    for at in range(3):
        (loss_of(w, x[at], t[at]) / 3).backward()
    return summed(w)


def one_row_twice() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
    for rows in torch.tensor([0, 1, 2, 3, 4, 5, 6, 6]).split(2):
        (loss_of(w, x[rows], t[rows]) / 4).backward()
    return summed(w)


def labels_in_another_order() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
    for rows, others in zip(order().split(2), order().flip(0).split(2), strict=True):
        (loss_of(w, x[rows], t[others]) / 4).backward()
    return summed(w)


def every_other_row() -> Tensor:
    w = whole(W.clone().requires_grad_())
    loss_of(w, shard(X)[::2], shard(T)[::2]).backward()
    return summed(w)


def with_rows_cut_otherwise() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
    for at in range(2):
        (loss_of(w, x[at::2], t[at * 4 : (at + 1) * 4]) / 2).backward()
    return summed(w)


def with_the_labels_of_another() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X).split(2), shard(T).split(2)
    for at in range(4):
        (loss_of(w, x[at], t[3 - at]) / 4).backward()
    return summed(w)


def real_and_fake() -> Tensor:
    """The first half of the batch is one kind of data, and the second another."""
    w = whole(W.clone().requires_grad_())
    real, fake = shard(X).chunk(2)
    (torch.relu(real @ w.T).mean() - torch.relu(-(fake @ w.T)).mean()).backward()
    return summed(w)


def pairs() -> Tensor:
    w = whole(W.clone().requires_grad_())
    one, other = shard(X).chunk(2)
    ((one @ w.T) * (other @ w.T)).mean().backward()
    return summed(w)


def next_row() -> Tensor:
    """The next row of the sequence is the label of each."""
    w, x = whole(W.clone().requires_grad_()), shard(X)
    loss_of(w, x[:-1], x[1:, :3]).backward()
    return summed(w)


def rolled() -> Tensor:
    w, x = whole(W.clone().requires_grad_()), shard(X)
    loss_of(w, torch.cat([x[4:], x[:4]]), shard(T)).backward()
    return summed(w)


def gathered() -> Tensor:
    w = whole(W.clone().requires_grad_())
    for part in shard(X).split(2):
        every = spmd.all_gather(part, "tp", src=spmd.S(0), dst=spmd.I)
        (every.T @ every).square().sum()
    return w.detach()


def not_summed() -> Tensor:
    w, x, t = whole(W.clone().requires_grad_()), shard(X), shard(T)
    for one, other in zip(x.split(2), t.split(2), strict=True):
        (loss_of(w, one, other) / 4).backward()
    torch.optim.SGD([w], lr=0.0).step()
    assert w.grad is not None
    return w.grad


WRONG = {
    "the first alone": (first_only, "SW405"),
    "one left out": (one_left_out, "SW405"),
    "one row twice": (one_row_twice, "SW405"),
    "labels in another order": (labels_in_another_order, "SW405"),
    "every other row": (every_other_row, "SW405"),
    "with rows cut otherwise": (with_rows_cut_otherwise, "SW405"),
    "with the labels of another": (with_the_labels_of_another, "SW405"),
    "real and fake": (real_and_fake, "SW405"),
    "pairs": (pairs, "SW405"),
    "next row": (next_row, "SW405"),
    "rolled": (rolled, "SW405"),
    "gathered": (gathered, "SW405"),
    "gradients are not summed": (not_summed, "SW608"),
}


def told(program: Callable[[], Tensor]) -> list[tuple[list[str], Tensor]]:
    """What every rank is told, and gets."""

    def on_a_rank() -> tuple[list[str], Tensor]:
        collector = Collector()
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh), checking(local=False, collect=collector):
            made = program()
        return [finding.code for finding in collector.result().findings], made.detach()

    return InProcessWorld(RANKS).run(on_a_rank)


@pytest.mark.parametrize("name", RIGHT)
def test_a_loop_over_all_micro_batches_computes_what_one_device_does(name: str) -> None:
    w = W.clone().requires_grad_()
    loss_of(w, X, T).backward()
    for codes, gradient in told(RIGHT[name]):
        assert codes == []
        torch.testing.assert_close(gradient, w.grad)


@pytest.mark.parametrize("name", WRONG)
def test_a_micro_batch_that_is_treated_otherwise_is_a_cut_of_a_shard(name: str) -> None:
    program, code = WRONG[name]
    for codes, _ in told(program):
        assert code in codes


def over_two_axes(cut: Callable[[Tensor], list[Tensor]]) -> list[tuple[list[str], Tensor]]:
    """What every rank is told, and gets, of a batch that is sharded over both axes of a mesh."""

    def on_a_rank() -> tuple[list[str], Tensor]:
        collector, mesh = Collector(), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "ep"))
        with spmd.set_current_mesh(mesh), checking(local=False, collect=collector):
            x, t = (
                spmd.assert_type(full.chunk(4)[dist.get_rank()], {"dp": spmd.S(0), "ep": spmd.S(0)}) for full in (X, T)
            )
            w = spmd.assert_type(W.clone().requires_grad_(), {"dp": spmd.R, "ep": spmd.R})
            for one, other in zip(cut(x), cut(t), strict=True):
                (loss_of(w, one, other) / 2).backward()
            made = summed(w)
        return [finding.code for finding in collector.result().findings], made.detach()

    return InProcessWorld(4).run(on_a_rank)


def test_micro_batches_of_a_batch_that_two_axes_shard() -> None:
    w = W.clone().requires_grad_()
    loss_of(w, X, T).backward()
    for codes, gradient in over_two_axes(lambda x: list(x.chunk(2))):
        assert codes == []
        torch.testing.assert_close(gradient, w.grad)
    for codes, _ in over_two_axes(lambda x: [x[:2]]):
        assert "SW405" in codes


def test_where_findings_are_raised_the_cut_is(tp_mesh: Any) -> None:
    with typecheck(local=False), pytest.raises(SpmdTypeError, match="SW405"):
        spmd.assert_type(torch.randn(8, 4), {"tp": spmd.S(0)}).split(2)


@pytest.mark.parametrize("cut", [torch.chunk, torch.tensor_split], ids=["chunk", "tensor_split"])
def test_one_piece_by_a_share_of_pieces_is_a_micro_batch(cut: Callable[..., tuple[Tensor, ...]]) -> None:
    """On one device it is the first of several: that it is treated as they are is trusted, and listed."""

    def on_a_rank() -> tuple[list[str], list[str]]:
        collector = Collector()
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(mesh), checking(local=False, collect=collector):
            (piece,) = cut(shard(X), RANKS // mesh.size())
            piece.square().sum()
        result = collector.result()
        return [finding.code for finding in result.findings], [claim.what for claim in result.trusted]

    for codes, trusted in InProcessWorld(RANKS).run(on_a_rank):
        assert codes == []
        assert any("micro-batches" in what for what in trusted)
