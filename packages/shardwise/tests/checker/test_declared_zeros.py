"""Zeros that a program has declared are a term of a pending sum, until they are written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.types import SpmdTypeError

from .helpers import make, place, refused


def zeros(letter: str) -> torch.Tensor:
    return spmd.assert_type(torch.zeros(4, 4), {"tp": getattr(spmd, letter)})


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("letter", ["R", "V", "P"])
def test_what_is_added_to_them_stays_what_it_is(tp_mesh: Any, letter: str, local: bool) -> None:
    with typecheck(local=local):
        for _ in range(2):
            held = zeros(letter)
            assert place(make("P") + held) == "P"
            assert place(held + make("P")) == "P"
            assert place(make("P") - 0.5 * make("P") + held) == "P"


@pytest.mark.parametrize("local", [True, False])
def test_once_written_they_are_what_they_are_said_to_be(tp_mesh: Any, local: bool) -> None:
    letter = "V" if local else "R"
    with typecheck(local=local):
        for write in (
            lambda held: held.mul_(2.0),
            lambda held: held[0].fill_(1.0),
            lambda held: dist.broadcast(held, 0),
        ):
            held = zeros(letter)
            make("P") + held
            write(held)
            with pytest.raises(SpmdTypeError, match=r"SW110|SW113"):
                make("P") + held
        with pytest.raises(SpmdTypeError, match=r"SW110|SW113"):
            make("P") + make(letter)


def test_what_is_made_of_them_is_no_declaration(tp_mesh: Any) -> None:
    with typecheck(), refused("SW110"):
        make("P") + zeros("V").exp()
