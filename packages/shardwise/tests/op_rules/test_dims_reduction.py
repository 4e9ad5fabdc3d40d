"""What the rules say about sharded reductions, against the numbers: all that is true is said, nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from .global_ruleset import differences, shown
from .values import booleans, integers, real

torch.set_num_threads(1)

CASES: list[tuple[str, Callable[..., Any]]] = [
    ("sum", lambda x: x.sum()),
    ("sum of a dim", lambda x: x.sum(1)),
    ("sum of dims, kept", lambda x: x.sum((0, -1), keepdim=True)),
    ("sum by keyword", lambda x: torch.sum(input=x, dim=-2)),
    ("sum over no dims", lambda x: x.sum(dim=())),
    ("sum in another dtype", lambda x: x.sum(1, dtype=torch.float32)),
    ("mean", lambda x: x.mean()),
    ("mean of dims", lambda x: x.mean((0, 2))),
    ("mean, kept", lambda x: x.mean(-1, True)),
    ("prod", lambda x: x.prod()),
    ("prod of a dim", lambda x: x.prod(1, keepdim=True)),
    ("amax", lambda x: x.amax()),
    ("amax of dims", lambda x: x.amax((0, 1))),
    ("amin", lambda x: torch.amin(x, dim=2, keepdim=True)),
    ("max", lambda x: x.max()),
    ("max of a dim", lambda x: x.max(1)),
    ("max of a dim by keyword, kept", lambda x: torch.max(x, dim=0, keepdim=True)),
    ("min of a dim, kept", lambda x: x.min(-1, True)),
    ("aminmax", lambda x: torch.aminmax(x)),
    ("aminmax of a dim", lambda x: torch.aminmax(x, dim=1, keepdim=True)),
    ("argmax", lambda x: x.argmax()),
    ("argmax of a dim", lambda x: x.argmax(1)),
    ("argmin of a dim, kept", lambda x: torch.argmin(x, dim=-1, keepdim=True)),
    ("any", lambda x: (x > 0.5).any()),
    ("any of a dim", lambda x: (x > 0.5).any(1)),
    ("all of dims", lambda x: (x > 0.5).all(2, True)),
    ("std", lambda x: x.std()),
    ("std, biased", lambda x: x.std(False)),
    ("std of a dim", lambda x: x.std(1)),
    ("var of dims", lambda x: x.var((0, 1), keepdim=True, correction=0)),
    ("var_mean", lambda x: torch.var_mean(x, 1)),
    ("std_mean, kept", lambda x: torch.std_mean(x, dim=2, keepdim=True)),
    ("norm", lambda x: x.norm()),
    ("norm of a dim", lambda x: torch.norm(x, 2, 1)),
    ("1-norm of a dim", lambda x: x.norm(1, dim=1)),
    ("fro norm", lambda x: torch.norm(x, "fro", dim=(0, 1))),
    ("linalg.vector_norm", lambda x: torch.linalg.vector_norm(x)),
    ("linalg.vector_norm, 1, of dims", lambda x: torch.linalg.vector_norm(x, 1, (0, 1))),
    ("linalg.vector_norm, 0", lambda x: torch.linalg.vector_norm(x, ord=0, dim=0)),
    ("linalg.vector_norm, inf, kept", lambda x: torch.linalg.vector_norm(x, float("inf"), dim=2, keepdim=True)),
    ("linalg.vector_norm, 3", lambda x: torch.linalg.vector_norm(x, 3, -1)),
    ("logsumexp", lambda x: torch.logsumexp(x, 1)),
    ("logsumexp of dims, kept", lambda x: torch.logsumexp(x, (0, 2), keepdim=True)),
    ("median", lambda x: x.median()),
    ("median of a dim", lambda x: x.median(1)),
    ("nanmedian of a dim", lambda x: torch.nanmedian(x, dim=0)),
    ("mode", lambda x: torch.mode(x)),
    ("mode of a dim", lambda x: x.mode(0, True)),
    ("kthvalue", lambda x: torch.kthvalue(x, 2)),
    ("kthvalue of a dim", lambda x: torch.kthvalue(x, 1, 1, True)),
    ("quantile", lambda x: torch.quantile(x, 0.3, dim=1)),
    ("quantile of all", lambda x: torch.quantile(x, 0.3)),
    ("count_nonzero", lambda x: torch.count_nonzero(x)),
    ("count_nonzero of a dim", lambda x: torch.count_nonzero(x, dim=1)),
    ("sum_to_size", lambda x: x.sum_to_size(1, x.shape[2])),
    ("histc", lambda x: torch.histc(x, 4, 0.0, 2.0)),
    ("histc without limits", lambda x: torch.histc(x, 4)),
    ("unique", lambda x: torch.unique(x)),
    ("cov", lambda x: torch.cov(x[0])),
    ("trace", lambda x: torch.trace(x[0])),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "fn"), CASES, ids=[name for name, _ in CASES])
def test_one_operand(name: str, fn: Callable[..., Any]) -> None:
    assert shown(differences(fn, real(4, 5, 4) + 0.1)) == []


@pytest.mark.parametrize("fn", [lambda x: torch.nansum(x, 0), lambda x: torch.nanmean(x, 1), torch.nanmean])
def test_which_elements_are_skipped_is_not_decided_on_addends(fn: Callable[..., Any]) -> None:
    assert shown(differences(fn, real(4, 5)), "P -> P") == []


TWO: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    ("max", torch.max, (real(4, 5), real(5))),
    ("bincount", lambda i: torch.bincount(i, minlength=5), (torch.tensor([0, 3, 1, 4, 2, 3]),)),
    (
        "bincount, weighed",
        lambda i, w: torch.bincount(i, w.detach(), minlength=5),
        (torch.tensor([0, 3, 1, 4, 2, 3]), real(6)),
    ),
    ("min", torch.min, (real(4, 5), real(4, 5))),
    ("dist", torch.dist, (real(4, 5), real(4, 5))),
    ("dist, 1", lambda x, y: torch.dist(x, y, p=1), (real(4, 5), real(5))),
    ("pairwise_distance", F.pairwise_distance, (real(4, 5), real(4, 5))),
    ("pairwise_distance, 1, kept", lambda x, y: F.pairwise_distance(x, y, 1, keepdim=True), (real(4, 5), real(4, 5))),
    ("cosine_similarity", F.cosine_similarity, (real(4, 5, 2), real(4, 5, 2))),
    ("cosine_similarity of a dim", lambda x, y: F.cosine_similarity(x, y, dim=-1), (real(4, 5), real(5))),
    ("cdist", torch.cdist, (real(4, 5), real(2, 5))),
    ("cdist, 1, batched", lambda x, y: torch.cdist(x, y, p=1.0), (real(2, 4, 5), real(2, 2, 5))),
    (
        "quantiles",
        lambda x, q: torch.quantile(x, q, dim=1),
        (real(4, 5), torch.tensor([0.1, 0.5], dtype=torch.float64)),
    ),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(("name", "fn", "tensors"), TWO, ids=[name for name, _, _ in TWO])
def test_two_operands(name: str, fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    assert shown(differences(fn, *tensors)) == []


@pytest.mark.parametrize("fn", [lambda x: x.sum(1), lambda x: x.any(0), lambda x: x.all(), lambda x: x.count_nonzero()])
@pytest.mark.parametrize("x", [booleans(4, 5), integers(3, 4, 5)], ids=["bool", "int64"])
def test_other_dtypes(fn: Callable[..., Any], x: torch.Tensor) -> None:
    assert shown(differences(fn, x)) == []
