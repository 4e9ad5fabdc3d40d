"""A buffer of zeros that the ranks fill together is summed once; one that every rank fills is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardwise.checker import typecheck

from .helpers import make, place, refused

WRITE: dict[str, Callable[[torch.Tensor, int, torch.Tensor], Any]] = {
    "an index": lambda buffer, at, x: buffer.__setitem__(slice(at, at + 4), x),
    "a copy into a view": lambda buffer, at, x: buffer[at : at + 4].copy_(x),
    "a sum into a view": lambda buffer, at, x: buffer.narrow(0, at, 4).add_(x),
}


@pytest.mark.parametrize("way", WRITE)
def test_what_a_rank_leaves_zero_is_for_the_others(tp_mesh: Any, way: str) -> None:
    x = make("R", 4)
    with typecheck():
        buffer = torch.zeros(64)
        for at in (0, 16, 32):
            WRITE[way](buffer, at, x)
        dist.all_reduce(buffer, group=tp_mesh.get_group())
        assert place(buffer) == "R"
        with refused("SW201", "buffer", "tp"):
            dist.all_reduce(buffer, group=tp_mesh.get_group())


@pytest.mark.parametrize("way", WRITE)
def test_a_buffer_that_every_rank_fills_but_for_its_padding_holds_equal_values(tp_mesh: Any, way: str) -> None:
    x = make("R", 4)
    with typecheck():
        buffer = torch.zeros(16 + 3)
        for at in range(0, 16, 4):
            WRITE[way](buffer, at, x)
        with refused("SW201", "buffer", "tp"):
            dist.all_reduce(buffer, group=tp_mesh.get_group())


def test_a_buffer_that_is_cleared_is_filled_anew(tp_mesh: Any) -> None:
    x = make("R", 4)
    with typecheck():
        buffer = torch.zeros(16)
        for _ in range(5):
            buffer.zero_()
            buffer[4:8] = x
            dist.all_reduce(buffer, group=tp_mesh.get_group())
        buffer.zero_()
        for at in range(0, 16, 4):
            buffer[at : at + 4] = x
        with refused("SW201", "buffer", "tp"):
            dist.all_reduce(buffer, group=tp_mesh.get_group())
