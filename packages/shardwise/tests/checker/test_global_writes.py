"""Global mode: what in-place calls do to partition specs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardwise as spmd
from shardwise import S
from shardwise.checker import typecheck

from .helpers import refused


def sharded(dim: int, *shape: int) -> torch.Tensor:
    return spmd.assert_type(torch.randn(shape), {"tp": S(dim)})


@pytest.mark.parametrize(
    ("name", "args", "before", "after"),
    [
        ("transpose_", (0, 1), 0, "f32[6, 4@tp]"),
        ("t_", (), 1, "f32[6@tp, 4]"),
        ("unsqueeze_", (0,), 1, "f32[1, 4, 6@tp]"),
        ("mul_", (2,), 1, "f32[4, 6@tp]"),
    ],
)
def test_an_in_place_call_leaves_the_spec_of_its_result(
    tp_mesh: Any, name: str, args: tuple[int, ...], before: int, after: str
) -> None:
    x = sharded(before, 4, 6)
    with typecheck(local=False):
        getattr(x, name)(*args)
        assert str(spmd.typeof(x)) == after


def test_a_shard_of_another_dim_cannot_be_written(tp_mesh: Any) -> None:
    x, y = sharded(0, 4, 4), sharded(1, 4, 4)
    with typecheck(local=False), refused("SW120", "from S(0) into S(1)"):
        x.copy_(y)


def test_axes_that_meet_on_one_dim_in_no_known_order_are_refused(mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(1, 6), {"dp": S(0), "tp": S(1)})
    with typecheck(local=False), refused("SW409", "x", "dp"):
        x.flatten()
