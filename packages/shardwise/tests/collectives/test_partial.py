"""Erased, is a contraction with a partial claim the plain torch call; and does every spelling carry the same claim?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import shardwise as spmd
from shardwise import I, P, R, S, SpmdTypeError, V
from shardwise.op_rules.partial_claim import PartialClaim

X, W, BIAS = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)


class Claims(TorchFunctionMode):
    """Notes the claims that reach a watching checker."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[PartialClaim] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if hasattr(func, "__shardwise_op__"):
            self.seen += args[-1]
        return func(*args, **(kwargs or {}))


ONE = [PartialClaim("tp")]
CASES: list[tuple[Callable[[], Any], Callable[[], Any], list[PartialClaim]]] = [
    # erased it is this plain call, and these are the claims
    (lambda: spmd.linear(X, W, out_partial_axes="tp"), lambda: X @ W.t(), ONE),
    (lambda: spmd.linear(X, W, BIAS, out_partial_axes="tp"), lambda: X @ W.t() + BIAS, ONE),
    (lambda: spmd.linear(X, W, bias=BIAS), lambda: X @ W.t() + BIAS, []),
    (lambda: spmd.linear(X, W, None, "tp"), lambda: X @ W.t(), ONE),
    (lambda: spmd.linear(X, W, "tp", V, P), lambda: X @ W.t(), [PartialClaim("tp", V)]),
    (lambda: spmd.linear(X, W, "tp", src=S(1), dst=P), lambda: X @ W.t(), [PartialClaim("tp", S(1))]),
    (lambda: spmd.linear(X, W, "tp", (S(1), S(1)), P), lambda: X @ W.t(), [PartialClaim("tp", (S(1), S(1)))]),
    (lambda: spmd.linear(X, W, ("dp", "tp"), (R, V), (P, P)), lambda: X @ W.t(),
     [PartialClaim("dp", R), PartialClaim("tp", V)]),
    (lambda: spmd.matmul(X, W.t(), out_partial_axes=("dp", "tp")), lambda: X @ W.t(),
     [PartialClaim("dp"), PartialClaim("tp")]),
    (lambda: spmd.matmul(X, W.t(), "tp", V, P), lambda: X @ W.t(), [PartialClaim("tp", V)]),
    (lambda: spmd.einsum("ij,kj->ik", X, W, out_partial_axes="tp"), lambda: X @ W.t(), ONE),
    (lambda: spmd.einsum("ij,kj->ik", X, W, axis="tp", src=(S(1), S(1)), dst=P), lambda: X @ W.t(),
     [PartialClaim("tp", (S(1), S(1)))]),
    (lambda: spmd.sum(X, out_partial_axes="tp"), lambda: X.sum(), ONE),
    (lambda: spmd.sum(X, 1, out_partial_axes="tp"), lambda: X.sum(1), ONE),
    (lambda: spmd.sum(X, (0, 1), keepdim=True, out_partial_axes="tp"), lambda: X.sum((0, 1), True), ONE),
    (lambda: spmd.sum(X, dim=0, dtype=torch.float64), lambda: X.sum(0, dtype=torch.float64), []),
    (lambda: spmd.sum(X, "tp", src=S(0), dst=P), lambda: X.sum(0), [PartialClaim("tp", S(0))]),
    (lambda: spmd.sum(X, "tp", S(-1), P), lambda: X.sum(-1), [PartialClaim("tp", S(-1))]),
    (lambda: spmd.sum(X, "tp", src=V, dst=P), lambda: X.sum(), [PartialClaim("tp", V)]),
    (lambda: spmd.sum(X, ("dp", "tp"), src=(S(0), S(1)), dst=P), lambda: X.sum((0, 1)),
     [PartialClaim("dp", S(0)), PartialClaim("tp", S(1))]),
    (lambda: spmd.sum(X, ("dp", "tp"), src=(S(1), S(1)), dst=P), lambda: X.sum(1),
     [PartialClaim("dp", S(1)), PartialClaim("tp", S(1))]),
    (lambda: spmd.sum(X, 1, axis="tp", src=S(0), dst=P), lambda: X.sum(1), [PartialClaim("tp", S(0))]),
    (lambda: spmd.mean(X, count=20, out_partial_axes="tp"), lambda: X.sum() / 20, ONE),
    (lambda: spmd.mean(X, 1, keepdim=True), lambda: X.mean(1, True), []),
    (lambda: spmd.mean(X.long(), (0, -1)), lambda: X.long().sum() / 12, []),
    (lambda: spmd.mean(X, "tp", src=S(0), count=torch.tensor(6)), lambda: X.sum(0) / 6, [PartialClaim("tp", S(0))]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "plain", "claims"), CASES)
def test_a_claim_is_carried_and_erased(call: Any, plain: Any, claims: list[PartialClaim]):
    torch.testing.assert_close(call(), plain())
    with Claims() as watch:
        torch.testing.assert_close(call(), plain())
    assert watch.seen == claims


WRONG = [
    (lambda: spmd.linear(X, W, "tp", V, R), "SW202", "dst must be P"),
    (lambda: spmd.sum(X, "tp", src=S(0), dst=I), "SW202", "dst must be P"),
    (lambda: spmd.linear(X, W, src=V, dst=P), "SW905", "without the axis"),
    (lambda: spmd.mean(X, "tp", src=V, dst=R, count=3), "SW202", "dst must be P"),
    (lambda: spmd.linear(X, W, "tp", V, P, out_partial_axes="tp"), "SW905", "not both"),
    (lambda: spmd.linear(X, W, "tp", V, P, 3), "SW905", "at most axis, src and dst"),
    (lambda: spmd.linear(X, W, "tp", axis="dp"), "SW905", "axis twice"),
    (lambda: spmd.sum(X, ("dp", "tp"), src=(S(0),), dst=P), "SW905", "one src and one dst per axis"),
    (lambda: spmd.sum(X, ("dp", "tp"), src=(S(0), S(1)), dst=(P, P, P)), "SW905", "one src and one dst per axis"),
]


@pytest.mark.parametrize(("call", "code", "words"), WRONG)
def test_a_claim_that_makes_no_sense_is_refused(call: Any, code: str, words: str):
    with pytest.raises(SpmdTypeError, match=words) as caught:
        call()
    assert caught.value.code == code
    assert caught.value.finding is not None
