"""When does a tensor get its type that a raw collective with ``async_op=True`` fills? When the program has waited."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise import I, P, R
from shardwise.checker import typecheck
from shardwise.interop.tensors.tagging import forget_memory

from .helpers import make, place


def test_the_sum_is_there_after_waiting_and_not_before(tp_mesh: Any) -> None:
    with typecheck():
        x = make("P")
        handle = dist.all_reduce(x, async_op=True)
        assert isinstance(handle, dist.Work)
        assert str(spmd.typeof(x)) == "f32[4, 4] unknown"
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


def test_what_is_received_of_an_unknown_buffer_is_known_along_the_collectives_axis_only(mesh: Any) -> None:
    with typecheck():
        x = spmd.assert_type(torch.ones(16).clone(), {"dp": P, "tp": R})
        forget_memory(x)
        piece = torch.empty(16 // mesh["dp"].size())
        dist.reduce_scatter_tensor(piece, x, group=mesh.get_group("dp"))
        whole = torch.empty(16)
        dist.all_gather_into_tensor(whole, piece, group=mesh.get_group("dp"))
        assert str(spmd.typeof(whole)) == "f32[16] {dp: R, tp: ?}"
        whole.mul_(spmd.assert_type(torch.ones(16).clone(), {"dp": R, "tp": I}))
