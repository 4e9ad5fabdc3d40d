"""Counts that are divided by the number of ranks say which dim is cut: against one device, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

import shardwise as spmd
from shardwise import R, S
from shardwise.checker import typecheck
from shardwise.cli.runs.run import CheckOptions, check_program
from shardwise.host.program import Program as Script
from shardwise.types.tensor_type import TensorType

from .helpers import operand, refused

RANKS = 4
Program = Callable[[Tensor, Tensor, int], Tensor]
"""Of data, a weight, and the number of ranks: 1 on one device."""

RIGHT: list[tuple[str, Program, tuple[int, ...], int, tuple[int, ...], int | None, int]] = [
    ("group_norm", lambda x, w, n: F.group_norm(x, 4 // n), (2, 8, 3), 1, (1,), None, 1),
    ("group_norm, several a rank", lambda x, w, n: F.group_norm(x, 8 // n), (2, 16, 3), 1, (1,), None, 1),
    ("group_norm, affine", lambda x, w, n: F.group_norm(x, 4 // n, w, w), (2, 8, 3), 1, (8,), 0, 1),
    ("its module", lambda x, w, n: torch.nn.GroupNorm(4 // n, x.shape[1], affine=False)(x), (2, 8), 1, (1,), None, 1),
    ("one head a rank", lambda x, w, n: x.view(5, 4 // n, 2), (5, 8), 1, (1,), None, 1),
    ("one head a rank, and -1", lambda x, w, n: x.view(-1, 4 // n, 2), (5, 8), 1, (1,), None, 1),
    ("a list", lambda x, w, n: x.reshape([5, 4 // n, 2]), (5, 8), 1, (1,), None, 1),
    ("by name", lambda x, w, n: torch.reshape(x, shape=(5, 4 // n, 2)), (5, 8), 1, (1,), None, 1),
    ("unflatten", lambda x, w, n: x.unflatten(1, (4 // n, 2)), (5, 8), 1, (1,), None, 1),
    ("unflatten, and -1", lambda x, w, n: x.unflatten(-1, (4 // n, -1)), (5, 8), 1, (1,), None, 1),
    ("two heads a rank", lambda x, w, n: x.view(5, 8 // n, 2), (5, 16), 1, (1,), None, 1),
    ("heads there and back", lambda x, w, n: x.view(5, 4 // n, 2).exp().reshape(5, 8 // n), (5, 8), 1, (1,), None, 1),
    ("in front of one", lambda x, w, n: x.view(4 // n, 1, 2, 5), (8, 5), 0, (1,), None, 0),
    ("with a weight of each head", lambda x, w, n: x.view(5, 4 // n, 2) * w, (5, 8), 1, (4, 2), 0, 1),
    ("grouped convolution", lambda x, w, n: F.conv1d(x, w, groups=4 // n), (2, 8, 5), 1, (4, 2, 3), 0, 1),
    ("depthwise", lambda x, w, n: F.conv1d(x, w, groups=x.shape[1]), (2, 4, 5), 1, (4, 1, 3), 0, 1),
    ("transposed", lambda x, w, n: F.conv_transpose1d(x, w, groups=4 // n), (2, 8, 5), 1, (8, 3, 2), 0, 1),
    ("transposed, several", lambda x, w, n: F.conv_transpose1d(x, w, groups=8 // n), (2, 8, 5), 1, (8, 3, 2), 0, 1),
    (
        "copies for each head",
        lambda x, w, n: x.view(5, 4 // n, 2) * w.expand(5, 4 // n, 2),
        (5, 8),
        1,
        (1, 1, 2),
        None,
        1,
    ),
    (
        "memory for the heads",
        lambda x, w, n: torch.zeros(5, 4 // n, 2) + x.view(5, 4 // n, 2),
        (5, 8),
        1,
        (1,),
        None,
        1,
    ),
    (
        "copies for several heads",
        lambda x, w, n: x.view(5, 8 // n, 2) * w.expand(5, 8 // n, 2),
        (5, 16),
        1,
        (1, 1, 2),
        None,
        1,
    ),
    (
        "repeated for several heads",
        lambda x, w, n: x.view(5, 8 // n, 2) * w.repeat_interleave(8 // n, 1),
        (5, 16),
        1,
        (1, 1, 2),
        None,
        1,
    ),
    (
        "ones for several heads",
        lambda x, w, n: (torch.ones(5, 8 // n, 2) * w).exp() + x.view(5, 8 // n, 2),
        (5, 16),
        1,
        (1, 1, 2),
        None,
        1,
    ),
]


@pytest.mark.parametrize(
    ("program", "shape", "cut", "small", "small_cut", "dim"), [pytest.param(*c[1:], id=c[0]) for c in RIGHT]
)
def test_a_divided_count_says_what_one_device_computes(
    tp_mesh: Any,
    program: Program,
    shape: tuple[int, ...],
    cut: int,
    small: tuple[int, ...],
    small_cut: int | None,
    dim: int,
) -> None:
    generator = torch.Generator().manual_seed(1)
    whole, weight = torch.randn(shape, generator=generator), torch.randn(small, generator=generator)
    pieces = list(whole.chunk(RANKS, cut))
    weights = [weight] * RANKS if small_cut is None else list(weight.chunk(RANKS, small_cut))
    with typecheck(local=False):
        x = spmd.assert_type(pieces[0].clone(), {"tp": S(cut)})
        w = spmd.assert_type(weights[0].clone(), {"tp": R if small_cut is None else S(small_cut)})
        for _ in range(2):
            found = program(x, w, dist.get_world_size())
            axis = spmd.normalize_axis("tp")
            spec = spmd.PartitionSpec(*[axis if at == dim else None for at in range(found.ndim)])
            assert spmd.typeof(found).type is TensorType.of({axis: spmd.V}, spec)
    parts = [leaf.clone().requires_grad_() for leaf in pieces]
    alone = whole.clone().requires_grad_()
    made = [program(part, w, RANKS) for part, w in zip(parts, weights, strict=True)]
    expected = program(alone, weight, 1)
    torch.testing.assert_close(torch.cat(made, dim), expected)
    cotangent = torch.randn(expected.shape, generator=generator)
    expected.backward(cotangent)
    for result, sent in zip(made, cotangent.chunk(RANKS, dim), strict=True):
        result.backward(sent)
    assert alone.grad is not None
    torch.testing.assert_close(torch.cat([part.grad for part in parts if part.grad is not None], cut), alone.grad)


WRONG: list[tuple[str, str, Callable[[Tensor, int], object], str]] = [
    ("groups of the whole", "f32[2, 2@tp, 3]", lambda x, n: F.group_norm(x, 2), "SW405"),
    ("one group", "f32[2, 2@tp, 3]", lambda x, n: F.group_norm(x, 1), "SW405"),
    ("groups of as many as ranks", "f32[2, 4@tp, 3]", lambda x, n: F.group_norm(x, n), "SW405"),
    ("positions", "f32[2, 2, 4@tp]", lambda x, n: F.group_norm(x, 8 // n), "SW405"),
    ("a share of 1 between", "f32[5, 4@tp, 7]", lambda x, n: x.view(5, 4, 4 // n, 7), "SW405"),
    ("a row of ones", "f32[5, 4@tp, 1]", lambda x, n: x.view(5, 4, 4 // n), "SW405"),
    ("uneven", "f32[2, 2@~tp, 3]", lambda x, n: F.group_norm(x, 4 // n), "SW417"),
    ("a share behind another dim", "f32[5, 4@tp]", lambda x, n: x.view(5, 2, 8 // n), "SW405"),
    ("half of the shard behind another dim", "f32[4@tp, 3]", lambda x, n: x.view(2, x.shape[0] // 2, 3), "SW405"),
    ("a share of 1 behind another dim", "f32[5, 4@tp]", lambda x, n: x.view(5, 4, 4 // n), "SW405"),
]


@pytest.mark.parametrize(("written", "program", "code"), [pytest.param(*c[1:], id=c[0]) for c in WRONG])
def test_a_count_that_is_not_divided_or_is_elsewhere_is_refused(
    tp_mesh: Any, written: str, program: Callable[[Tensor, int], object], code: str
) -> None:
    with typecheck(local=False):
        x = operand(written)
        with refused(code):
            program(x, dist.get_world_size())


BLOCK = """
import math
import torch
import shardwise as spmd
from shardwise import S
from torch.distributed.device_mesh import init_device_mesh

class Block(torch.nn.Module):
    def __init__(self, tp):
        super().__init__()
        self.heads = int(2 / tp)
        self.norm = torch.nn.GroupNorm(math.floor(4 / tp), 4, affine=False)

    def forward(self, x):
        q = x.view(x.shape[0], self.heads, 4)
        kept = q.exp() * torch.ones(x.shape[0], self.heads, 1).mul_(2.0)
        return self.norm(kept.reshape(x.shape[0], -1)), q

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
block = Block(mesh["tp"].size())
with spmd.set_current_mesh(mesh):
    y, q = block(spmd.assert_type(torch.randn(3, 4), {"dp": S(0), "tp": S(1)}))
    spmd.assert_type(y, {"dp": S(0), "tp": S(1)})
    spmd.assert_type(q, {"dp": S(0), "tp": S(1)})
"""


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("", "", []),
        ("math.floor(4 / tp)", "2", [("SW405", 17)]),
        ("self.heads, 4)", "1, 4)", [("SW401", 16), ("SW131", 24)]),
    ],
    ids=["right", "groups of one rank", "heads of one rank"],
)
def test_counts_keep_where_they_come_from_in_a_program(
    tmp_path: Path, before: str, after: str, codes: list[tuple[str, int]]
) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCK.replace(before, after) if before else BLOCK)
    result = check_program(Script(path=str(script)), CheckOptions(4, local=False))
    found = [(one.code, one.location and one.location.line) for one in result.findings]
    assert found == codes, [one.headline for one in result.findings]
