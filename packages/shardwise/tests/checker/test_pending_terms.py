"""A contraction over a sharded dim is a pending sum, and so may be what is added to it: with global types."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .on_ranks import Case, addend, drawn, judge, shard, whole

pytestmark = pytest.mark.processes

X, W, B, M = drawn(8, 4), drawn(6, 4, seed=1), drawn(6, seed=2), drawn(8, 6, seed=3)
X3, W3, M3 = drawn(2, 3, 4, seed=4), drawn(2, 4, 5, seed=5), drawn(2, 3, 5, seed=6)

CASES = [
    Case("linear", lambda: F.linear(shard(X, 1), shard(W, 1), addend(B)), F.linear(X, W, B)),
    Case("addmm", lambda: torch.addmm(addend(M), shard(X, 1), shard(W, 1).t()), torch.addmm(M, X, W.t())),
    Case(
        "addmm with factors",
        lambda: torch.addmm(addend(M), shard(X, 1), shard(W, 1).t(), beta=0.5, alpha=-2.0),
        torch.addmm(M, X, W.t(), beta=0.5, alpha=-2.0),
    ),
    Case(
        "baddbmm", lambda: torch.baddbmm(addend(M3), shard(X3, 2), shard(W3, 1)), torch.baddbmm(M3, X3, W3)
    ),
    Case("addmv", lambda: torch.addmv(addend(B), shard(W, 1), shard(X[0])), torch.addmv(B, W, X[0])),
    Case("in place", lambda: addend(M).addmm_(shard(X, 1), shard(W, 1).t()), torch.addmm(M, X, W.t())),
    Case("bias of all ranks", lambda: F.linear(shard(X, 1), shard(W, 1), whole(B)), code="SW113"),
    Case("a kept dim", lambda: F.linear(shard(X, 0), whole(W), addend(B)), code="SW110"),
    Case("added element by element", lambda: shard(X) + addend(X[:4]), code="SW110"),
    Case("a factor", lambda: shard(X, 1) @ addend(W[:, :2]).t(), code="SW110"),
    Case("a function of them", lambda: F.bilinear(shard(X, 1), addend(X), whole(drawn(5, 2, 4))), code="SW110"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_pending_sum_is_added_to_one_that_a_contraction_leaves(case: Case) -> None:
    judge(case)
