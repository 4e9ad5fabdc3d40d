"""Attention in global mode: what the rules say of every sharding is what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from shardwise.types.placement import R, S

from .agreement import assert_agreement, randn
from .global_ruleset import ask

sdpa = F.scaled_dot_product_attention
GROUPED = {"enable_gqa": True}


def exact(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention by the plain formula, which has derivatives for everything."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(*args, **kwargs)


def kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    """The kernel for processors, which does not check its operands."""
    if q.shape[-1] != k.shape[-1] or k.shape != v.shape or q.shape[:2] != k.shape[:2]:
        raise RuntimeError("shapes do not fit")
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)


CALLS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "plain": (exact, randn((4, 2, 4, 2), (4, 2, 5, 2), (4, 2, 5, 4)), 4),
    "three dims": (exact, randn((4, 4, 2), (4, 5, 2), (4, 5, 4)), 4),
    "two dims": (exact, randn((4, 2), (5, 2), (5, 4)), 3),
    "causal": (lambda q, k, v: exact(q, k, v, is_causal=True), randn((2, 2, 4, 2), (2, 2, 4, 2), (2, 2, 4, 2)), 3),
    "mask": (exact, randn((4, 4, 2), (4, 5, 2), (4, 5, 2), (4, 5)), 2),
    "mask per key": (exact, randn((4, 4, 2), (4, 5, 2), (4, 5, 2), (1, 5)), 3),
    "mask per sample": (exact, randn((4, 4, 2), (4, 5, 2), (4, 5, 2), (4, 1, 5)), 3),
    "mask per query": (exact, randn((4, 4, 2), (4, 5, 2), (4, 5, 2), (4, 1)), 3),
    "grouped": (lambda q, k, v: exact(q, k, v, **GROUPED), randn((2, 8, 4, 2), (2, 4, 2, 2), (2, 4, 2, 2)), 4),
    "one key head": (lambda q, k, v: exact(q, k, v, **GROUPED), randn((2, 4, 4, 2), (2, 1, 2, 2), (2, 1, 2, 2)), 4),
    "kernel": (kernel, randn(*[(2, 2, 4, 2)] * 3), 3),
    "formula": (torch.ops.aten._scaled_dot_product_attention_math, randn((4, 4, 2), (4, 5, 2), (4, 5, 2)), 3),
}  # fmt: skip


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CALLS)
def test_attention_is_placed_as_the_numbers_say(name: str) -> None:
    fn, tensors, at_least = CALLS[name]
    # Unequal shards of grouped heads make no whole groups; one size is enough for a long list of placements.
    sizes = (2,) if name in ("grouped", "kernel") or len(tensors) > 3 else (2, 3)
    assert_agreement(fn, tensors, at_least=at_least, sizes=sizes, except_for=("SW110", "SW112", "SW114"))


def layer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: Any) -> Any:
    """multi_head_attention_forward with two heads of width 2, and constants for weights."""
    weight = torch.arange(48, dtype=torch.float64).sin().reshape(12, 4)
    return F.multi_head_attention_forward(
        q, k, v, 4, 2, weight, None, None, None, False, 0.0, weight[:4], None, training=False, **kwargs
    )


LAYERS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "layer": (layer, randn((4, 2, 4), (5, 2, 4), (5, 2, 4)), 3),
    "layer without batch": (layer, randn((4, 4), (5, 4), (5, 4)), 2),
    "layer without weights": (lambda *t: layer(*t, need_weights=False), randn((4, 2, 4), (5, 2, 4), (5, 2, 4)), 3),
    "weights of heads": (lambda *t: layer(*t, average_attn_weights=False), randn(*[(4, 2, 4)] * 3), 3),
    "mask": (lambda q, k, v, m: layer(q, k, v, attn_mask=m), randn((4, 2, 4), (5, 2, 4), (5, 2, 4), (4, 5)), 2),
    "padding": (
        lambda q, k, v, m: layer(q, k, v, key_padding_mask=m), randn((4, 2, 4), (5, 2, 4), (5, 2, 4), (2, 5)), 2
    ),
}  # fmt: skip


@pytest.mark.slow_but_one_in(2)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_keeps_batch_and_queries(name: str) -> None:
    fn, tensors, at_least = LAYERS[name]
    assert_agreement(fn, tensors, at_least=at_least, sizes=(2,), except_for=("SW110", "SW112"))


@pytest.mark.parametrize(
    ("kwargs", "placements", "code"),
    [
        ({"is_causal": True}, (S(2), R, R), "SW406"),
        ({}, (R, S(2), S(2)), "SW405"),
        ({}, (S(2), S(2), S(2)), "SW405"),
        ({}, (S(3), S(3), R), "SW405"),
        ({}, (S(1), S(1), R), "SW402"),
        (GROUPED, (S(1), R, R), "SW402"),
    ],
)
def test_attention_that_no_shard_can_do_is_refused(kwargs: Any, placements: Any, code: str) -> None:
    answer = ask(lambda q, k, v: sdpa(q, k, v, **kwargs), randn(*[(2, 2, 4, 2)] * 3), placements)
    assert str(answer).startswith(code), answer


def test_one_key_head_serves_all_query_heads_or_is_a_shard() -> None:
    tensors = randn((2, 2, 4, 2), (2, 1, 4, 2), (2, 1, 4, 2))

    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, enable_gqa=True)

    assert ask(fn, tensors, (S(1), R, R)) == (S(1),)
    assert ask(fn, tensors, (S(1), S(1), S(1))) == (S(1),)
    assert str(ask(fn, tensors, (R, S(1), S(1)))).startswith("SW402")
