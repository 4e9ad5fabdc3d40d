"""What the rules say about sharded normalisations, against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from .global_ruleset import differences, shown
from .values import positive, real

torch.set_num_threads(1)

C = 4
MEANT = {
    "native_batch_norm": ["R, P -> P, R, R"],
}
"""Refused though true: the kernel has no law of its own."""

CASES: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]] = [
    ("layer_norm", lambda x: F.layer_norm(x, (4,)), (real(4, 5, 4),)),
    ("layer_norm of two dims", lambda x, w, b: F.layer_norm(x, [5, 4], w, b), (real(4, 5, 4), real(5, 4), real(5, 4))),
    ("layer_norm, affine", lambda x, w, b: F.layer_norm(x, (4,), w, bias=b), (real(4, 5, 4), real(4), real(4))),
    ("native_layer_norm", lambda x, w, b: torch.native_layer_norm(x, (4,), w, b, 1e-5), (real(4, 4), real(4), real(4))),
    ("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), (real(4, 5, 4), real(4))),
    ("rms_norm without weight", lambda x: F.rms_norm(x, (5, 4)), (real(4, 5, 4),)),
    ("group_norm of one group", lambda x: F.group_norm(x, 1), (real(4, 5, 4),)),
    ("group_norm, affine", lambda x, w, b: F.group_norm(x, 2, w, b), (real(4, 4, 5), real(4), real(4))),
    (
        "batch_norm in evaluation",
        lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b),
        (real(2, C, 3), real(C), positive(C), real(C), real(C)),
    ),
    (
        "batch_norm in evaluation, plain",
        lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()),
        (real(4, C), real(C), positive(C)),
    ),
    ("batch_norm in training", lambda x, w: F.batch_norm(x, None, None, w, None, True), (real(4, C, 3), real(C))),
    (
        "torch.batch_norm",
        lambda x, w: torch.batch_norm(x, w, None, None, None, True, 0.1, 1e-5, False),
        (real(4, C, 3), real(C)),
    ),
    (
        "native_batch_norm",
        lambda x, w: torch.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5),
        (real(4, C, 3), real(C)),
    ),
    ("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (real(4, C, 5), real(C), real(C))),
    (
        "instance_norm in evaluation",
        lambda x, m, v: F.instance_norm(x, m.detach(), v.detach(), use_input_stats=False),
        (real(4, C, 5), real(C), positive(C)),
    ),
    ("local_response_norm", lambda x: F.local_response_norm(x, 3), (real(4, 5, 4),)),
    ("local_response_norm of images", lambda x: F.local_response_norm(x, 2), (real(2, 5, 4, 3),)),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "fn", "tensors"), CASES, ids=[name for name, _, _ in CASES])
def test_normalisation(name: str, fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> None:
    assert shown(differences(fn, *tensors), *MEANT.get(name, ())) == []


def same(one: int, other: int) -> bool:
    """The kernels read beyond the end of operands that do not fit."""
    if one != other:
        raise ValueError("sizes")
    return True


@pytest.mark.parametrize("dim", [0, 1])
def test_weight_norm(dim: int) -> None:
    def fn(v: torch.Tensor, g: torch.Tensor) -> Any:
        return same(v.shape[dim], g.shape[dim]) and torch._weight_norm(v, g, dim)

    assert shown(differences(fn, real(4, 5), real(4, 1) if dim == 0 else real(1, 5)), "R, P -> P") == []
    assert shown(differences(lambda v: torch.norm_except_dim(v, 2, dim), real(4, 5))) == []


def test_running_statistics_are_averages_over_the_batch() -> None:
    """The result is right with a sharded batch; what would be wrong is the statistics that are kept."""

    def fn(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        mean, var = mean.detach().clone(), var.detach().clone()
        return F.instance_norm(x, mean, var), mean, var

    assert shown(differences(fn, real(4, C, 5), real(C), positive(C))) == []
