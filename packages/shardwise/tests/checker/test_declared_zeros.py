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
@pytest.mark.parametrize("letter", ["V", "P"])
def test_what_is_added_to_them_stays_what_it_is(tp_mesh: Any, letter: str, local: bool) -> None:
    with typecheck(local=local):
        for _ in range(2):
            held = zeros(letter)
            assert place(make("P") + held) == "P"
            assert place(held + make("P")) == "P"
            assert place(make("P") - 0.5 * make("P") + held) == "P"


def test_once_written_they_are_what_they_are_said_to_be(tp_mesh: Any) -> None:
    with typecheck():
        for write in (
            lambda held: held.mul_(2.0),
            lambda held: held[0].fill_(1.0),
            lambda held: dist.broadcast(held, 0),
        ):
            held = zeros("V")
            make("P") + held
            write(held)
            with pytest.raises(SpmdTypeError, match=r"SW110|SW113"):
                make("P") + held
        with pytest.raises(SpmdTypeError, match=r"SW110|SW113"):
            make("P") + make("V")


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_bias_that_starts_at_zero_is_added_once_per_rank_all_the_same(tp_mesh: Any, local: bool, grad: bool) -> None:
    with typecheck(local=local), pytest.raises(SpmdTypeError, match=r"SW11\d"):
        make("P") + zeros("R").requires_grad_(grad)


def test_a_parameter_that_starts_at_zero_is_no_term(tp_mesh: Any) -> None:
    with typecheck(), refused("SW110"):
        make("P") + zeros("V").requires_grad_()


def test_zeros_are_read_as_what_they_are_said_to_be(tp_mesh: Any) -> None:
    with typecheck(), refused("SW112"):
        zeros("P").relu()


def test_what_is_made_of_them_is_no_declaration(tp_mesh: Any) -> None:
    with typecheck(), refused("SW110"):
        make("P") + zeros("V").exp()
