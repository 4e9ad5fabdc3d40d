"""Ranks that torch's LocalTensorMode simulates hold what ranks of a world hold: values and gradients of every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh

import shardwise as sw
from shardwise import I, P, R, S, V, set_current_mesh
from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.interop.torch_compat import fake_world
from shardwise.worlds.world import InProcessWorld

Call = tuple[str, Any, Any, dict[str, Any]]

COMMUNICATING: list[Call] = [
    ("all_reduce", P, R, {}),
    ("all_reduce", P, I, {}),
    ("all_reduce", P, R, {"async_op": True}),
    ("all_gather", V, R, {}),
    ("all_gather", V, I, {}),
    ("all_gather", S(0), R, {}),
    ("all_gather", S(1), I, {}),
    ("all_gather", S(0), R, {"split_sizes": [4, 4]}),
    ("reduce_scatter", P, S(0), {}),
    ("reduce_scatter", P, S(1), {}),
    ("reduce_scatter", P, S(0), {"split_sizes": [3, 1]}),
    ("all_to_all", S(0), S(1), {}),
    ("all_to_all", S(1), S(0), {}),
    ("all_to_all", S(0), S(0), {"input_split_sizes": [2, 2], "output_split_sizes": [2, 2]}),
]
IN_PLACE_OF_THE_RANK: list[Call] = [
    ("convert", R, S(0), {}),
    ("convert", R, S(1), {}),
    ("convert", R, S(0), {"split_sizes": [1, 3]}),
    ("convert", I, S(0), {}),
    ("convert", R, P, {}),
    ("convert", R, I, {"expert_mode": True}),
    ("convert", I, R, {}),
    ("convert", I, P, {"expert_mode": True}),
    ("convert", S(1), P, {"expert_mode": True}),
    ("convert", V, P, {"expert_mode": True}),
    ("reinterpret", R, P, {"expert_mode": True}),
    ("reinterpret", I, V, {}),
    ("reinterpret", V, P, {}),
    ("redistribute", S(0), S(1), {}),
    ("redistribute", R, S(1), {}),
    ("shard", R, S(0), {}),
    ("unshard", S(0), R, {}),
]
ENTRY_PER_RANK: list[Call] = [("convert", R, V, {}), ("reduce_scatter", P, V, {}), ("all_to_all", V, V, {})]
SIZES = {"dp": 2, "tp": 2}


def operand(rank: int, src: object, rows: int) -> Tensor:
    """What ``rank`` hands in: the same on all ranks where ``src`` says so."""
    known = 0 if src in (R, I) else 100 * rank
    return (torch.arange(rows * 4, dtype=torch.float64) + known).reshape(rows, 4)


def result(call: Call, axis: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the call gives, and the gradient of a sum of its squares."""
    name, src, dst, options = call
    x = x.detach().requires_grad_()
    y = getattr(sw, name)(x, axis, src=src, dst=dst, **options)
    return y.detach(), torch.autograd.grad((y * y).sum(), x)[0]


def on_ranks(call: Call, axis: str, rows: int) -> list[list[Any]]:
    """Values and gradients by rank, on ranks that share this process."""

    def run() -> tuple[Tensor, Tensor]:
        with set_current_mesh(init_device_mesh("cpu", tuple(SIZES.values()), mesh_dim_names=tuple(SIZES))):
            return result(call, axis, operand(dist.get_rank(), call[1], rows))

    return [[kept.tolist() for kept in each] for each in InProcessWorld(4).run(run)]


def simulated(rows: int, src: object, act: Callable[[Any], tuple[Tensor, ...]]) -> list[list[Any]]:
    """The same by LocalTensorMode, with ``act`` on its tensor."""
    kept: list[list[Any]] = [[] for _ in range(4)]
    with fake_world(0, 4):
        mesh = init_device_mesh("cpu", tuple(SIZES.values()), mesh_dim_names=tuple(SIZES))
        with set_current_mesh(mesh), LocalTensorMode(4) as mode:

            def keep(rank: int, own: Tensor) -> Tensor:
                kept[rank].append(own.tolist())
                return own

            for made in act(mode.rank_map(lambda rank: operand(rank, src, rows))):
                mode.tensor_map(made, keep)
    return kept


@pytest.mark.parametrize("axis", SIZES)
@pytest.mark.parametrize(
    "call", [*COMMUNICATING, *IN_PLACE_OF_THE_RANK, *ENTRY_PER_RANK], ids=lambda call: "-".join(map(str, call))
)
def test_simulated_ranks_hold_what_ranks_hold(call, axis):
    rows = 2 if call in ENTRY_PER_RANK else 4
    assert simulated(rows, call[1], lambda x: result(call, axis, x)) == on_ranks(call, axis, rows)


def test_an_equal_tensor_from_outside_the_mode_is_every_ranks():
    outside = operand(0, R, 4)
    kept = simulated(4, R, lambda x: (sw.convert(outside, "dp", src=R, dst=S(0)),))
    assert kept == simulated(4, R, lambda x: (sw.convert(x, "dp", src=R, dst=S(0)),))
    assert kept[0] != kept[2]


def test_types_are_followed_under_the_mode():
    def act(x: Tensor) -> tuple[Tensor, ...]:
        with sw.typecheck():
            x = sw.assert_type(x, {"dp": R, "tp": P})
            y = sw.all_reduce(x, "tp", src=P, dst=R)
            assert sw.get_local_type(y) == {sw.normalize_axis("dp"): R, sw.normalize_axis("tp"): R}
            with pytest.raises(SpmdTypeError, match="SW"):
                sw.all_reduce(y, "tp", src=P, dst=R)
            return (y,)

    assert simulated(4, P, act)[0] == [(operand(0, P, 4) + operand(1, P, 4)).tolist()]


def test_sizes_are_compared_with_every_simulated_rank():
    def act(x: Tensor) -> tuple[Tensor, ...]:
        with pytest.raises(SpmdValueError, match="say that rank 1 of the axis holds 5"):
            sw.all_gather(x, "tp", src=S(0), dst=R, split_sizes=[4, 5])
        return ()

    simulated(4, V, act)


def test_distinct_random_streams_are_refused_under_the_mode():
    def act(x: Tensor) -> tuple[Tensor, ...]:
        with pytest.raises(SpmdTypeError, match="LocalTensorMode"):
            sw.rng(1, distinct="dp")
        sw.rng(1)
        return ()

    simulated(4, V, act)
