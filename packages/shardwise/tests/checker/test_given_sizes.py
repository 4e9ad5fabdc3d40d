"""Copies and constants in the sizes of a shard are cut like the shard: against one device, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

import shardwise as spmd
from shardwise import I, P, R, S
from shardwise.checker import typecheck
from shardwise.types import SpmdTypeError
from shardwise.types.tensor_type import TensorType

from .helpers import operand, refused

Program = Callable[[Tensor, Tensor], Tensor]
RANKS = 4
SHARED: list[tuple[str, Program, Any]] = [
    ("a class token", lambda x, w: torch.cat([w.expand(x.shape[0], -1, -1), x], 1), S(0)),
    ("sizes in a list", lambda x, w: x * w.expand([x.size(0), 3, 4]), S(0)),
    ("all sizes", lambda x, w: w.expand(x.shape), S(0)),
    ("broadcast_to", lambda x, w: x + torch.broadcast_to(w, x.size()), S(0)),
    ("a dim in front", lambda x, w: w[0].expand(x.shape[0], 1, 4) * x, S(0)),
    ("repeat", lambda x, w: w.repeat(x.shape[0], 1, 1) + x.mean(1, keepdim=True), S(0)),
    ("tile", lambda x, w: torch.tile(w, (len(x.shape) and x.shape[0], 1, 1)), S(0)),
    ("positions", lambda x, w: x + torch.arange(4).repeat(x.shape[0], 3, 1) * w, S(0)),
    ("positions, expanded", lambda x, w: x + w * torch.arange(4).unsqueeze(0).expand(x.size(0), 4)[:, None], S(0)),
    ("summed", lambda x, w: w.expand(x.shape[0], 1, 4).sum(), P),
    ("ones", lambda x, w: torch.ones(x.shape[0], 4) * w[0], S(0)),
    ("ones, summed", lambda x, w: torch.ones(x.shape[0]).sum() * w.sum(), P),
    ("zeros and a sum", lambda x, w: (torch.zeros(x.shape) + w).exp().sum(), P),
    ("full", lambda x, w: x * torch.full((x.shape[0], 1, 1), 2.0) + w, S(0)),
    ("written to", lambda x, w: torch.zeros(x.shape[0], 4).add_(x.sum(1) * w.sum()), S(0)),
    ("new_full", lambda x, w: torch.cat([x, x.new_full((x.shape[0], 1, 4), 0.5) * w], 1), S(0)),
    ("new_full, by name", lambda x, w: x * w.new_full(size=(len(x), 3, 1), fill_value=2.0) + w, S(0)),
    ("new_full, of a size", lambda x, w: x.new_full((x.shape[0], 4), x.shape[1]) * w[0], S(0)),
    ("new_full, summed", lambda x, w: x.new_full((x.shape[0],), 0.5).sum() * w.sum(), P),
    ("new_ones, summed", lambda x, w: w.new_ones(x.shape[0], 2).sum() * w.sum(), P),
    ("new_zeros and a sum", lambda x, w: (w.new_zeros(x.size()) + w).exp().sum(), P),
    ("repeat_interleave", lambda x, w: x + w.repeat_interleave(x.shape[0], 0), S(0)),
    ("repeat_interleave, by name", lambda x, w: torch.repeat_interleave(w, repeats=x.shape[0], dim=-3).exp().sum(), P),
    ("of two dims", lambda x, w: torch.ones(x.shape[0], x.shape[1]) @ w[0].expand(3, 4), S(0)),
    ("stacked", lambda x, w: torch.stack([w[0, 0]] * x.shape[0])[:, None] * x, S(0)),
    ("stacked, summed", lambda x, w: torch.stack(len(x.shape) and x.shape[0] * [w[0, 0]]).sum(), P),
    ("stacked in the middle", lambda x, w: torch.stack([w[0]] * x.size(0), 1)[0] * x[:, 0], S(0)),
    ("joined", lambda x, w: torch.cat([w] * x.shape[0]) + x, S(0)),
    ("joined, by name", lambda x, w: torch.cat(tensors=[w] * x.shape[0], dim=0) + x, S(0)),
    ("joined, two by two", lambda x, w: torch.cat([w, 0.5 * w] * x.shape[0]).sum(), P),
    ("below one another", lambda x, w: torch.vstack([w[0]] * x.shape[0]) + x[:, 0], S(0)),
    ("empty and filled", lambda x, w: torch.empty(x.shape[0], 4).fill_(0.5) * w[0], S(0)),
    ("empty and filled, summed", lambda x, w: torch.empty(x.shape[0]).fill_(0.5).sum() * w.sum(), P),
    ("filled with a number", lambda x, w: x.new_empty(x.shape[0], 4).fill_(w[0, 0, 0].detach()) * w[0], S(0)),
    ("empty_like and filled", lambda x, w: (torch.empty_like(x).fill_(0.5) * w).sum(), P),
    ("copied into memory", lambda x, w: torch.empty(x.shape[0], 3, 4).copy_(w.detach()).sum() * w.sum(), P),
    ("copied into zeros", lambda x, w: torch.zeros(x.shape).copy_(w.detach()) * w, S(0)),
    ("copied into what is like it", lambda x, w: torch.empty_like(x).copy_(w.detach()) * w, S(0)),
]


def cut(x: Tensor) -> list[Tensor]:
    return [piece.clone() for piece in x.chunk(RANKS)]


@pytest.mark.parametrize(("program", "place"), [pytest.param(*case[1:], id=case[0]) for case in SHARED])
def test_what_the_types_say_is_what_one_device_computes(tp_mesh: Any, program: Program, place: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    batch, token = torch.randn(8, 3, 4, generator=generator), torch.randn(1, 1, 4, generator=generator)
    with typecheck(local=False):
        x = spmd.assert_type(cut(batch)[0], {"tp": S(0)})
        found = program(x, spmd.assert_type(token.clone().requires_grad_(), {"tp": R}))
        assert spmd.typeof(found).type is TensorType.of(*like(place, found.ndim))
    leaves = [token.clone().requires_grad_() for _ in range(RANKS)]
    parts = [program(piece, leaf) for piece, leaf in zip(cut(batch), leaves, strict=True)]
    alone = token.clone().requires_grad_()
    whole = program(batch, alone)
    torch.testing.assert_close(torch.cat(parts) if place == S(0) else torch.stack(parts).sum(0), whole)
    cotangent = torch.randn(whole.shape, generator=generator)
    whole.backward(cotangent)
    for part, sent in zip(parts, cut(cotangent) if place == S(0) else [cotangent] * RANKS, strict=True):
        part.backward(sent)
    torch.testing.assert_close(sum(leaf.grad for leaf in leaves if leaf.grad is not None), alone.grad)


def like(place: Any, ndim: int) -> tuple[Any, Any]:
    """What ``TensorType.of`` takes for a placement over tp."""
    axis = spmd.normalize_axis("tp")
    if place == S(0):
        return {axis: spmd.V}, spmd.PartitionSpec(axis, *[None] * (ndim - 1))
    return {axis: place}, None


def test_a_count_of_ones_is_pending_like_the_sum_beside_it(tp_mesh: Any) -> None:
    """Divided by this rank's count, the sum over the ranks would be as many times too large."""
    with typecheck(local=False):
        for written in ("f32[4@tp, 3]", "f32[4@~tp, 3]"):
            x = operand(written)
            with pytest.raises(SpmdTypeError, match="SW114"):
                x.sum() / torch.ones(x.shape).sum()
            count = spmd.all_reduce(torch.ones(x.shape).sum(), "tp", src=P, dst=R)
            assert spmd.typeof(x.sum() / count).type.exponent(spmd.normalize_axis("tp")) == 0


def test_one_value_of_another_scale_is_cut_like_its_sizes(tp_mesh: Any) -> None:
    """The factor of a mean, once for each row, is n times as large as on one device, and a sum of it is not."""
    tp = spmd.normalize_axis("tp")
    with typecheck(local=False):
        x = operand("f32[4@tp, 3]")
        for weights in (torch.full((x.shape[0],), 1 / x.shape[0]), x.new_full((x.shape[0],), 1 / x.shape[0])):
            assert str(spmd.typeof(weights)).startswith("f32[4@tp]")
            assert spmd.typeof(weights).type.exponent(tp) == 1
        same = torch.full((2, 3), 1 / x.shape[0])
        assert spmd.typeof(same).type.local == {tp: R}


def test_sizes_of_the_whole_cut_nothing(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x, w = operand("f32[4@tp, 3]"), operand("f32[1, 3] {tp: R}")
        everywhere = {spmd.normalize_axis("tp"): R}
        for whole in (w.expand(x.shape[0] * dist.get_world_size(), 3), w.expand(x.shape[1], 3), w.expand(4, 3)):
            assert spmd.typeof(whole).type.local == everywhere
        square = torch.ones(x.shape[0], x.shape[0])
        assert spmd.typeof(square).type.local == everywhere, "nobody knows which of the two is cut"


def test_a_verdict_on_sizes_is_one_on_what_they_are_of(tp_mesh: Any) -> None:
    """Equal numbers of another origin are another call, however often both are made."""
    with typecheck(local=False):
        shard, whole = operand("f32[4@tp, 3]"), operand("f32[4, 3] {tp: R}")
        for _ in range(3):
            assert "@tp" in str(spmd.typeof(torch.ones(shard.shape)))
            assert "@tp" not in str(spmd.typeof(torch.ones(whole.shape)))
            assert "@tp" not in str(spmd.typeof(torch.ones(4, 3)))


def test_what_every_rank_repeats_is_not_copied_for_each_row_of_a_shard(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = operand("f32[4@tp, 3]")
        token = spmd.assert_type(nn.Parameter(torch.zeros(1, 3)), {"tp": I})
        with pytest.raises(SpmdTypeError, match=r"SW101 .*expand copies token, invariant over tp, into the shards"):
            token.expand(x.shape[0], -1)
        converted = spmd.convert(token, "tp", src=I, dst=R).expand(x.shape[0], -1)
        assert str(spmd.typeof(converted)) == "f32[4@tp, 3]"


@pytest.mark.parametrize(
    "copies",
    [
        lambda p, x: p.expand(x.shape[0], 3),
        lambda p, x: p.repeat(x.shape[0], 1),
        lambda p, x: torch.stack([p] * x.shape[0]),
        lambda p, x: torch.empty_like(x).copy_(p),
    ],
    ids=["expand", "repeat", "stack", "copy_"],
)
def test_nothing_is_pending_and_copied_for_each_row_of_a_shard(tp_mesh: Any, copies: Program) -> None:
    """Over the ranks there are the rows of all: a sum of as many as one rank has is that of no tensor."""
    with typecheck(local=False):
        x, pending = operand("f32[4@tp, 3]"), operand("f32[3] {tp: P}")
        with pytest.raises(SpmdTypeError, match="SW112"):
            copies(pending, x)


def test_random_numbers_in_the_sizes_of_a_shard_are_each_ranks_own(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = operand("f32[4@tp, 3]")
        for noise in (torch.randn(x.shape), torch.rand(x.shape[0], 3), torch.randint(0, 9, (x.shape[0],))):
            assert "4@tp" in str(spmd.typeof(noise))
        assert str(spmd.typeof(x + 0.1 * torch.randn(x.shape))) == "f32[4@tp, 3]"


@pytest.mark.parametrize("rows", [lambda x: x.shape[0], lambda x: 8 // dist.get_world_size()], ids=["read", "written"])
def test_pieces_that_a_stream_makes_alike_are_no_pieces_of_one_tensor(
    tp_mesh: Any, rows: Callable[[Tensor], int]
) -> None:
    with typecheck(local=False):
        x = operand("f32[2@tp, 4]")
        drawn = torch.randn(rows(x), 4, generator=spmd.rng(1, synchronised="tp").generator())
        assert str(spmd.typeof(drawn)) == "f32[2, 4] {tp: R}"
        with refused("SW130"):
            spmd.assert_type(drawn, {"tp": S(0)})


def test_a_list_that_a_size_repeats_is_a_list_for_everybody_else(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = operand("f32[8@tp, 2]")
        rows = [torch.ones(2)] * x.shape[0]
        assert isinstance(rows, list)
        assert len(tree_leaves({"rows": rows})) == len(rows)
        assert type(tree_map(torch.neg, rows)) is list
        assert type(rows)(one for one in rows).__class__ is list
        assert type([0] * dist.get_world_size(tp_mesh.get_group())) is list
