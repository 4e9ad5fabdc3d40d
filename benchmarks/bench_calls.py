"""What does a checked call cost over the plain one, and what does the same call cost under DTensor?

Small tensors on the CPU, so that overhead is what is measured. The baseline is the plain call on plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from rows import Row, microseconds, side_by_side
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor

from shardwise import R, assert_type, set_current_mesh
from shardwise.checker import typecheck
from shardwise.interop.torch_compat import fake_world

WIDTH, HEADS = 16, 4


def block(x: Tensor, w: Tensor) -> Tensor:
    """A pre-norm transformer block whose weights are all ``w``: 20 calls."""
    h = F.rms_norm(x, (WIDTH,))
    q, k, v = (F.linear(h, w).unflatten(-1, (HEADS, -1)).transpose(1, 2) for _ in range(3))
    weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
    x = x + F.linear((weights @ v).transpose(1, 2).flatten(2), w)
    h = F.rms_norm(x, (WIDTH,))
    return x + F.linear(F.silu(F.linear(h, w)) * F.linear(h, w), w)


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Any], int]] = {
    "mul": (lambda x, w: w * w, 1),
    "mm": (lambda x, w: w @ w, 1),
    "linear": (lambda x, w: F.linear(x, w), 1),
    "transformer block": (block, 20),
}


def measure(quick: bool = False) -> list[Row]:
    """Three rows per case: checked with local and with global types, and under DTensor."""
    repeats, calls = (3, 5) if quick else (31, 200)
    rows = []
    torch.set_num_threads(1)
    with fake_world(rank=0, world_size=4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x, w = torch.randn(2, 8, WIDTH), torch.randn(WIDTH, WIDTH)
        typed = [assert_typed(mesh, tensor) for tensor in (x, w)]
        spread = [distribute_tensor(tensor, mesh, [Replicate(), Replicate()]) for tensor in (x, w)]
        for name, (function, size) in CASES.items():

            def plain(function: Any = function, count: int = max(1, calls // size)) -> float:
                return microseconds(lambda: function(x, w), count)

            def checked(function: Any = function, count: int = max(1, calls // size)) -> float:
                with set_current_mesh(mesh), typecheck():
                    return microseconds(lambda: function(*typed), count)

            def globally(function: Any = function, count: int = max(1, calls // size)) -> float:
                with set_current_mesh(mesh), typecheck(local=False):
                    return microseconds(lambda: function(*typed), count)

            def under_dtensor(function: Any = function, count: int = max(1, calls // size)) -> float:
                return microseconds(lambda: function(*spread), count)

            for warm in (plain, checked, globally, under_dtensor):
                warm()
            medians, ratios = side_by_side((plain, checked, globally, under_dtensor), repeats)
            goal = "at most 8 us over plain" if size == 1 else "less than DTensor, at most 2.5"
            names = ("local types", "global types", "DTensor")
            for at, (what, aim) in enumerate(zip(names, (goal, goal, ""), strict=True), 1):
                rows.append(Row("A checked call", f"{name}, {what}", "us", medians[0], medians[at], ratios[at], aim))
    return rows


def assert_typed(mesh: Any, tensor: Tensor) -> Tensor:
    """A copy of ``tensor`` that is replicated on every axis."""
    with set_current_mesh(mesh):
        return assert_type(tensor.clone(), {"dp": R, "tp": R})
