"""Gather, scatter and embedding in global mode: what the rules say of every sharding is what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shardwise.op_rules.propagation.dim_labels import Call, Shape
from shardwise.op_rules.registry import lookup
from shardwise.types.placement import P, R, S

from .agreement import assert_agreement, randn
from .global_ruleset import ask

EXCEPT = ("SW110", "SW112", "SW113", "SW114")
"""SW113: where everything is overwritten, the destination's own value does not matter; no row says so."""


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(1))


X = randn((4, 5))
FEW = torch.tensor([0, 2, 3, 1])
CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "index_select": (lambda x, i: torch.index_select(x, 1, i), [*X, ids(2, 4)], 3),
    "index_select named": (lambda x, i: x.index_select(dim=-1, index=i), [*X, ids(2, 4)], 3),
    "index_select scalar": (lambda x, i: torch.index_select(x, 0, i), [*X, ids(2)], 2),
    "gather": (lambda x, i: torch.gather(x, 1, i), [*X, ids(2, 4, 4)], 4),
    "gather rows": (lambda x, i: x.gather(0, i), [*X, ids(2, 4, 5)], 4),
    "gather fewer": (lambda x, i: x.gather(1, i), [*X, ids(2, 2, 4)], 3),
    "take": (torch.take, [*X, ids(5, 4, 2)], 3),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), [*X, ids(2, 4, 4)], 4),
    "take_along_dim broadcast": (lambda x, i: torch.take_along_dim(x, i, 1), [*X, ids(2, 1, 4)], 4),
    "take_along_dim flat": (lambda x, i: torch.take_along_dim(x, i), [*X, ids(5, 4)], 3),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), [*X, FEW.expand(4, 4).contiguous(), *randn((4, 4))], 2),
    "scatter number": (lambda x, i: x.scatter(0, i, 3.0), [*X, ids(2, 2, 5)], 2),
    "scatter into more": (lambda x, i, s: x.scatter(0, i, s), [*X, ids(2, 1, 2), *randn((2, 5))], 1),
    "scatter add": (lambda x, i, s: x.scatter(1, i, s, reduce="add"), [*X, ids(2, 4, 4), *randn((4, 4))], 3),
    "scatter_add": (lambda x, i, s: x.scatter_add(1, i, s), [*X, ids(2, 4, 4), *randn((4, 4))], 3),
    "scatter_add to zeros": (
        lambda i, s: torch.zeros(3, dtype=s.dtype).scatter_add(0, i, s), [ids(2, 4), *randn((4,))], 3),
    "scatter_reduce": (lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), [*X, ids(2, 4, 4), *randn((4, 4))], 2),
    "scatter_reduce sum, over what is there": (
        lambda x, i, s: x.scatter_reduce(1, i, s, "sum", include_self=False), [*X, ids(2, 4, 4), *randn((4, 4))], 2
    ),
    "scatter_reduce sum": (lambda x, i, s: x.scatter_reduce(1, i, s, "sum"), [*X, ids(2, 4, 4), *randn((4, 4))], 3),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), [*X, ids(2, 4), *randn((4, 5))], 3),
    "index_add to zeros": (
        lambda i, s: torch.zeros(3, 5, dtype=s.dtype).index_add(0, i, s, alpha=2), [ids(2, 4), *randn((4, 5))], 3),
    "index_copy": (lambda x, i, s: x.index_copy(1, i, s), [*X, FEW, *randn((4, 4))], 2),
    "index_fill": (lambda x, i: x.index_fill(1, i, 2.0), [*X, FEW], 2),
    "index_reduce": (lambda x, i, s: x.index_reduce(1, i, s, "amin"), [*X, FEW, *randn((4, 4))], 2),
    "put": (lambda x, i, s: x.put(i, s), [*X, FEW, *randn((4,))], 1),
    "masked_select": (torch.masked_select, [*X, torch.arange(20).reshape(4, 5) % 3 == 0], 1),
    "embedding": (F.embedding, [ids(4, 4, 2), *randn((4, 5))], 5),
    "embedding padded": (lambda i, w: F.embedding(i, w, padding_idx=1), [ids(4, 4), *randn((4, 5))], 3),
    "embedding scaled": (lambda i, w: F.embedding(i, w, scale_grad_by_freq=True), [ids(4, 4), *randn((4, 5))], 2),
    "aten embedding": (lambda w, i: torch.ops.aten.embedding(w, i), [*randn((4, 5)), ids(4, 4)], 3),
    "embedding_bag": (F.embedding_bag, [ids(4, 4, 5), *randn((4, 5))], 3),
    "embedding_bag sum": (lambda i, w: F.embedding_bag(i, w, mode="sum"), [ids(4, 4, 5), *randn((4, 5))], 4),
    "embedding_bag max": (lambda i, w: F.embedding_bag(i, w, mode="max"), [ids(4, 4, 5), *randn((4, 5))], 3),
    "embedding_bag weighted": (
        lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        [ids(4, 4, 5), *randn((4, 5), (4, 5))], 4),
    "embedding_bag offsets": (
        lambda i, w: F.embedding_bag(i, w, torch.arange(3) * 2, mode="sum"), [ids(4, 7), *randn((4, 5))], 2),
    "select_scatter": (lambda x, s: torch.select_scatter(x, s, 1, 2), [*X, *randn((4,))], 2),
    "slice_scatter": (lambda x, s: torch.slice_scatter(x, s, 1, 1, 3), [*X, *randn((4, 2))], 2),
    "slice_scatter all": (lambda x, s: torch.slice_scatter(x, s, 1), [*X, *randn((4, 5))], 3),
    "diagonal_scatter": (
        lambda x, s: torch.diagonal_scatter(x, s, 0, 1, 2), [*randn((4, 5, 4), (4, 4))], 2),
}  # fmt: skip


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CALLS)
def test_positions_are_placed_as_the_numbers_say(name: str) -> None:
    fn, tensors, at_least = CALLS[name]
    assert_agreement(fn, tensors, at_least=at_least, except_for=EXCEPT)


def test_a_sharded_vocabulary_is_refused_with_the_way_out() -> None:
    answer = ask(F.embedding, (ids(4, 2, 3), *randn((4, 5))), (R, S(0)))
    assert str(answer).startswith("SW405")
    rule = lookup("embedding")
    assert rule is not None
    assert rule.labels is not None
    made = rule.labels(Call((Shape((2, 3), "input"), Shape((4, 5), "weight")), {}))
    assert made is not None
    assert "vocab-parallel" in made.why["v"]


def test_experts_are_counted_by_a_pending_sum() -> None:
    def count(chosen: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4).scatter_add(0, chosen, torch.ones(chosen.shape[0]))

    assert ask(count, (ids(4, 6),), (S(0),)) == (P,)
