"""Rules of functions that do not communicate: what they say of addends and shards is tried on two parts of a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function

import shardwise as spmd
from shardwise import P, R, S, V, rules
from shardwise.checker import typecheck

from .helpers import place, refused

SIZES = (4, 6)
BIAS = torch.randn(6)


def ruled(forward: Callable[..., Any], rule: Callable[..., Any]) -> Any:
    class Local(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor | None = None, size: int = 1) -> Any:
            return forward(x, w, size)

        @staticmethod
        def spmd_typecheck(*, x: torch.Tensor, w: torch.Tensor | None) -> Any:
            return rule(x, w)

    return Local


def elementwise(x: torch.Tensor, w: object) -> Any:
    return rules.einsum("ij->ij", x, linear_in=(0,))


def contracted(x: torch.Tensor, w: torch.Tensor) -> Any:
    return rules.einsum("ij,kj->ik", x, w, linear_in=(0, 1))


def both(x: torch.Tensor, w: object) -> Any:
    return (rules.einsum("ij->ij", x), rules.einsum("ij->i", x))


RIGHT: list[tuple[str, Any, Any, Any, Any]] = [
    ("a factor, of addends", lambda x, w, size: 3 * x, elementwise, P, None),
    ("a factor, of rows", lambda x, w, size: 3 * x, elementwise, S(0), None),
    ("a product of rows", lambda x, w, size: x @ w.T, contracted, S(0), R),
    ("a product with split columns", lambda x, w, size: x @ w.T, contracted, R, S(0)),
    ("a contraction of shards", lambda x, w, size: x @ w.T, contracted, S(1), S(1)),
    ("a product of addends", lambda x, w, size: x @ w.T, contracted, P, R),
    ("several results", lambda x, w, size: (x.relu(), x.sum(1)), both, S(0), None),
    ("several results, one a sum", lambda x, w, size: (x.relu(), x.sum(1)), both, S(1), None),
    ("rounded by a scale of its own", lambda x, w, size: rounded(x), elementwise, S(0), None),
    ("in single precision", lambda x, w, size: (3 * x.float()).to(x.dtype), elementwise, P, None),
    ("what has no value at random numbers", lambda x, w, size: x.log(), elementwise, S(0), None),
]
WRONG: list[tuple[str, Any, Any, Any, Any, str]] = [
    ("a square of addends", lambda x, w, size: x * x, elementwise, P, None, "P (a partial sum)"),
    ("a bias on addends", lambda x, w, size: x + 1, elementwise, P, None, "P (a partial sum)"),
    ("a softmax of shards", lambda x, w, size: x.softmax(0), elementwise, S(0), None, "sharded on dim 0"),
    ("a mean of shards", lambda x, w, size: x - x.mean(1, True), elementwise, S(1), None, "sharded on dim 1"),
    ("a running sum of shards", lambda x, w, size: x.cumsum(1), elementwise, S(1), None, "sharded on dim 1"),
    ("a curved contraction", lambda x, w, size: F.gelu(x @ w.T), contracted, S(1), S(1), "P (a partial sum)"),
    ("one of several", lambda x, w, size: (x.relu(), x.amax(1)), both, S(1), None, "output 1 is P"),
]


def rounded(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().max() / 127
    return (x / scale).round() * scale


def applied(cls: Any, x: Any, w: Any, *size: int) -> Any:
    args = [None if one is None else spmd.assert_type(torch.randn(SIZES), {"tp": one}) for one in (x, w)]
    return cls.apply(*args, *size)


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case[0])
def test_what_is_true_of_parts_is_believed(tp_mesh: Any, case: Any) -> None:
    _, forward, rule, x, w = case
    with typecheck(local=False):
        applied(ruled(forward, rule), x, w)


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[0])
def test_what_is_not_true_of_parts_is_told(tp_mesh: Any, case: Any) -> None:
    _, forward, rule, x, w, said = case
    with typecheck(local=False), refused("SW306", said):
        applied(ruled(forward, rule), x, w)


def test_what_may_be_the_size_of_a_shard_is_not_tried_on_the_whole(tp_mesh: Any) -> None:
    rows = ruled(lambda x, w, size: x.view(size, -1).cumsum(1).view_as(x), elementwise)
    with typecheck(local=False):
        applied(rows, S(0), None, 4)


def test_addends_are_tried_with_local_types_and_pieces_are_not(tp_mesh: Any) -> None:
    with typecheck(), refused("SW306", "P (a partial sum)"):
        applied(ruled(lambda x, w, size: x.relu(), elementwise), P, None)
    with typecheck():
        assert place(applied(ruled(lambda x, w, size: x.softmax(0), elementwise), V, None)) == "V"


def test_numbers_that_a_ruled_function_draws_are_equal_nowhere(tp_mesh: Any) -> None:
    noisy = ruled(lambda x, w, size: x * torch.rand_like(x), elementwise)
    with typecheck(local=False):
        applied(noisy, S(0), None)
        with refused("SW121", "random"):
            applied(noisy, R, None)


@pytest.mark.parametrize("where", [R, V, P])
def test_a_tensor_from_outside_that_varies_is_no_operand_of_the_rule(tp_mesh: Any, where: Any) -> None:
    bias = spmd.assert_type(BIAS.clone(), {"tp": where})
    cls = ruled(lambda x, w, size: x + bias, lambda x, w: rules.einsum("ij->ij", x))
    with typecheck():
        if where is R:
            assert place(applied(cls, R, None)) == "R"
            return
        with refused("SW306", "reads bias"):
            applied(cls, R, None)
