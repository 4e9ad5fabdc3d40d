"""When does a tensor get its type that a raw collective with ``async_op=True`` fills? When the program has waited."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise.checker import typecheck

from .helpers import make, place


def test_the_sum_is_there_after_waiting_and_not_before(tp_mesh: Any) -> None:
    with typecheck():
        x = make("P")
        handle = dist.all_reduce(x, async_op=True)
        assert isinstance(handle, dist.Work)
        assert str(spmd.typeof(x)) == str(spmd.typeof(torch.relu(x))) == "f32[4, 4] unknown"
        handle.wait()
        assert place(x) == "R"


def test_the_pieces_are_there_after_waiting(tp_mesh: Any) -> None:
    with typecheck():
        whole = torch.empty(16, 4)
        handle = dist.all_gather_into_tensor(whole, make("V"), async_op=True)
        assert place(whole) == ""
        handle.wait()
        assert place(whole) == "R"


def test_a_raw_collective_is_traced(tp_mesh: Any, caplog: pytest.LogCaptureFixture) -> None:
    x = make("P")
    with typecheck(), spmd.trace(), caplog.at_level(logging.INFO, "shardwise.trace"):
        dist.all_reduce(x)
    assert [line.partition("  ")[2] for line in caplog.messages] == [
        "all_reduce(f32[4, 4] {tp: P}) -> f32[4, 4] {tp: R}"
    ]
