"""What does a typed collective cost, erased, over the same collective written by hand?

The yardstick is an autograd.Function with its backward around the torch.distributed call, as one would write it. Both
run on the fake process group, where the collective itself costs nothing, so what is compared is overhead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardwise as spmd
from shardwise import I, P, R, S
from shardwise.interop.torch_compat import fake_world

gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        x = x.contiguous()
        whole = x.new_empty((x.shape[0] * dist.get_world_size(group), *x.shape[1:]))
        gather(whole, x, group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        piece = grad.new_empty((grad.shape[0] // dist.get_world_size(ctx.group), *grad.shape[1:]))
        scatter(piece, grad, group=ctx.group)
        return piece, None


class ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        x = x.contiguous()
        piece = x.new_empty((x.shape[0] // dist.get_world_size(group), *x.shape[1:]))
        scatter(piece, x, group=group)
        return piece

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        whole = grad.new_empty((grad.shape[0] * dist.get_world_size(ctx.group), *grad.shape[1:]))
        gather(whole, grad, group=ctx.group)
        return whole, None


class Copy(torch.autograd.Function):
    """Megatron's copy to the tensor-parallel region."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


CASES: dict[str, tuple[Callable[[Tensor, Any], Tensor], Callable[[Tensor, Any], Tensor]]] = {
    "all_reduce": (AllReduce.apply, lambda x, axis: spmd.all_reduce(x, axis, src=P, dst=R)),
    "all_gather": (AllGather.apply, lambda x, axis: spmd.all_gather(x, axis, src=S(0), dst=R)),
    "reduce_scatter": (ReduceScatter.apply, lambda x, axis: spmd.reduce_scatter(x, axis, src=P, dst=S(0))),
    "convert": (Copy.apply, lambda x, axis: spmd.convert(x, axis, src=I, dst=R)),
}


def collectives(rows: int = 64, columns: int = 64, repeats: int = 41, calls: int = 200) -> dict[str, dict[str, float]]:
    """Median microseconds of forward and backward, by case: hand-written, typed, and the ratio typed / hand-written.

    The two are timed in turn, so that a slow moment of the machine hits both; the ratio is the median of the ratios.
    """
    results: dict[str, dict[str, float]] = {}
    with fake_world(rank=0, world_size=4):
        group = dist.group.WORLD
        x = torch.randn(rows, columns, requires_grad=True)
        for name, (by_hand, typed) in CASES.items():
            grad = torch.ones_like(by_hand(x, group))
            pairs = [
                (_time(by_hand, x, group, grad, calls), _time(typed, x, group, grad, calls)) for _ in range(repeats)
            ]
            results[name] = {
                "by_hand_us": statistics.median(pair[0] for pair in pairs),
                "typed_us": statistics.median(pair[1] for pair in pairs),
                "ratio": statistics.median(typed_us / hand_us for hand_us, typed_us in pairs),
            }
    return results


def _time(function: Callable[[Tensor, Any], Tensor], x: Tensor, group: Any, grad: Tensor, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        torch.autograd.grad(function(x, group), x, grad)
    return (time.perf_counter() - start) / calls * 1e6


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, medians in collectives().items():
        print(f"{name:16} by hand {medians['by_hand_us']:7.2f} us   typed {medians['typed_us']:7.2f} us", end="")
        print(f"   x{medians['ratio']:.3f}")
