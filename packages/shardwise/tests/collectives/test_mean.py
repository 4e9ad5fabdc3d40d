"""Is a mean over ranks the mean of the whole? On real processes, with its gradient, whoever watches."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import shardwise as spmd
from shardwise import P, R, S, Scalar, SpmdTypeError, V
from shardwise.checker import typecheck
from shardwise.worlds.world import run_processes

pytestmark = pytest.mark.processes
EVEN, RAGGED = (2, 2, 2), (3, 0, 4)
MODES = {"unchecked": contextlib.nullcontext, "local": typecheck, "global": lambda: typecheck(local=False)}

CASES: dict[str, tuple[tuple[int, ...], Any, Any]] = {
    # the ranks' numbers of rows; the call on a rank's rows, the axis and the number of all rows; the mean of the whole
    "of all, counted": (EVEN, lambda x, tp, n: spmd.mean(x, out_partial_axes=tp), lambda x: x.mean()),
    "of rows, counted": (EVEN, lambda x, tp, n: spmd.mean(x, 0, out_partial_axes=tp), lambda x: x.mean(0)),
    "by what x is": (EVEN, lambda x, tp, n: spmd.mean(x, tp, src=S(0), dst=P), lambda x: x.mean(0)),
    "keeping the dim": (EVEN, lambda x, tp, n: spmd.mean(x, -2, keepdim=True, axis=tp, src=S(0)),
                        lambda x: x.mean(0, True)),
    "in double": (EVEN, lambda x, tp, n: spmd.mean(x.float(), dtype=torch.float64, out_partial_axes=tp),
                  lambda x: x.float().mean(dtype=torch.float64)),
    "of ragged rows": (RAGGED, lambda x, tp, n: spmd.mean(x, 0, count=n, out_partial_axes=tp), lambda x: x.mean(0)),
    "by a tensor": (RAGGED, lambda x, tp, n: spmd.mean(x, 0, count=counted(x, tp), out_partial_axes=tp),
                    lambda x: x.mean(0)),
    "by a scalar": (RAGGED, lambda x, tp, n: spmd.mean(x, count=Scalar(3 * n, {tp: R}), out_partial_axes=tp),
                    lambda x: x.mean()),
    "of some": (RAGGED, lambda x, tp, n: spmd.mean(x.relu(), 0, count=2, out_partial_axes=tp),
                lambda x: x.relu().sum(0) / 2),
}  # fmt: skip


def counted(x: Tensor, tp: Any) -> Tensor:
    """How many rows all ranks have, as a program finds out."""
    own = spmd.assert_type(torch.tensor(float(x.shape[0])), {tp: V})
    return spmd.all_reduce(own, tp, src=V, dst=R)


def whole(lengths: tuple[int, ...]) -> Tensor:
    return torch.randn(sum(lengths), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def means() -> dict[str, tuple[Tensor, Tensor]]:
    """On one rank: the mean of every case in every mode, and the gradient of this rank's rows."""
    tp, rank, size = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    found = {}
    for mode, watch in MODES.items():
        for name, (lengths, call, _) in CASES.items():
            lengths = lengths[:size]
            own = whole(lengths).split(lengths)[rank].clone()
            with spmd.set_current_mesh({"tp": spmd.MeshAxis.of(tp)}), watch():
                x = spmd.assert_type(own, {tp: S(0)}, even=None if size == 1 else lengths == EVEN[:size])
                x.requires_grad_()
                total = spmd.all_reduce(call(x, tp, sum(lengths)), tp, src=P, dst=R)
                weights = torch.arange(1.0, total.numel() + 1, dtype=total.dtype).view_as(total)
                (grad,) = torch.autograd.grad((total.detach() * 0 + total).mul(weights).sum(), x, _dual(tp, size))
            found[f"{name}, {mode}"] = (total.detach(), grad)
    return found


def _dual(tp: Any, size: int) -> Any:
    """The cotangent of a replicate result is a sum over the ranks: each has its share."""
    return spmd.assert_type(torch.tensor(1.0 / size, dtype=torch.float64), {tp: P})


@cache
def outcomes(size: int) -> list[dict[str, tuple[Tensor, Tensor]]]:
    return run_processes(means, size)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_the_mean_and_its_gradient_are_those_of_the_whole(name: str, mode: str, size: int) -> None:
    lengths, _, mean = CASES[name]
    x = whole(lengths[:size]).requires_grad_()
    expected = mean(x)
    weights = torch.arange(1.0, expected.numel() + 1, dtype=expected.dtype).view_as(expected)
    (expected * weights).sum().backward()
    ranks = [found[f"{name}, {mode}"] for found in outcomes(size)]
    for total, _ in ranks:
        torch.testing.assert_close(total, expected.detach())
    torch.testing.assert_close(torch.cat([grad for _, grad in ranks]), x.grad)


@pytest.mark.parametrize("count", [True, "6", [6], 2j])
def test_a_count_is_a_number_or_a_tensor(tp: None, count: Any) -> None:
    with pytest.raises(SpmdTypeError, match="count of mean") as caught:
        spmd.mean(torch.randn(2, 3), count=count, out_partial_axes="tp")
    assert caught.value.code == "SW905"


def test_nothing_has_no_mean(tp: None) -> None:
    assert spmd.mean(torch.randn(0, 3), out_partial_axes="tp").isnan()
    assert spmd.mean(torch.randn(2, 0), 0, out_partial_axes="tp").shape == (0,)
