"""Dims that change places, and elements that change places along a dim, against the numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .movement import Move, check, complexes, move, real, refusal

MOVES = [
    move("transpose", lambda x: x.transpose(0, -1), real(4, 5, 4), kept="0>2 1>1 2>0"),
    move("swapaxes", lambda x: torch.swapaxes(x, axis0=0, axis1=1), real(4, 5, 4), kept="0>1 1>0 2>2"),
    move("swapdims", lambda x: x.swapdims(0, 1), real(4, 5, 4), kept="0>1 1>0 2>2"),
    move("permute", lambda x: x.permute(2, 0, 1), real(4, 5, 4), kept="0>1 1>2 2>0"),
    move("permute", lambda x: torch.permute(x, dims=(-1, 0, 1)), real(4, 5, 4), kept="0>1 1>2 2>0"),
    move("t", torch.t, real(4, 5), kept="0>1 1>0"),
    move("t", torch.t, real(4), kept="0>0"),
    move("T", lambda x: x.T, real(4, 5), kept="0>1 1>0"),
    move("mT", lambda x: x.mT, real(4, 5, 4), kept="0>0 1>2 2>1"),
    move("H", lambda x: x.H, complexes(4, 5), kept="0>1 1>0"),
    move("mH", lambda x: x.mH, complexes(4, 5), kept="0>1 1>0"),
    move("adjoint", torch.adjoint, real(4, 5), kept="0>1 1>0"),
    move("movedim", lambda x: x.movedim(0, 2), real(4, 5, 4), kept="0>2 1>0 2>1"),
    move("moveaxis", lambda x: torch.moveaxis(x, (0, 1), (-1, 0)), real(4, 5, 4), kept="0>2 1>0 2>1"),
    move("flip", lambda x: x.flip(0), real(4, 5, 4), kept="1>1 2>2"),
    move("flip", lambda x: x.flip(0, -1), real(4, 5, 4), kept="1>1"),
    move("flip", lambda x: torch.flip(x, (1,)), real(4, 5, 4), kept="0>0 2>2"),
    move("flip", lambda x: torch.flip(x, ()), real(4, 5, 4), kept="0>0 1>1 2>2"),
    move("fliplr", torch.fliplr, real(4, 5), kept="0>0"),
    move("flipud", torch.flipud, real(4, 5), kept="1>1"),
    move("__reversed__", reversed, real(4, 5), kept="1>1"),
    move("roll", lambda x: x.roll(1, 0), real(4, 5), kept="1>1"),
    move("roll", lambda x: x.roll(1), real(4, 5), kept=""),
    move("roll", lambda x: torch.roll(x, (1, 1), (0, 1)), real(4, 5, 4), kept="2>2"),
    move("rot90", lambda x: x.rot90(), real(4, 5, 4), kept="0>1 2>2"),
    move("rot90", lambda x: x.rot90(2, (0, 1)), real(4, 5, 4), kept="2>2"),
    move("rot90", lambda x: torch.rot90(x, -1, (1, 2)), real(4, 5, 4), kept="0>0 2>1"),
    move("rot90", lambda x: torch.rot90(x, 4, (1, 2)), real(4, 5, 4), kept="0>0 1>1 2>2"),
    move("permute_copy", lambda x: torch.permute_copy(x, (1, 0)), real(4, 5), kept="0>1 1>0"),
    move("transpose_copy", lambda x: torch.transpose_copy(x, 1, 0), real(4, 5), kept="0>1 1>0"),
    move("t_copy", torch.t_copy, real(4, 5), kept="0>1 1>0"),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("case", MOVES, ids=str)
def test_a_permutation_admits_what_the_numbers_admit(case: Move) -> None:
    check(case)


@pytest.mark.parametrize(
    ("call", "local", "dim", "words"),
    [
        (lambda x: x.flip(0), real(4, 6), 0, "the order along the dim is reversed"),
        (lambda x: x.roll(1, 1), real(4, 6), 1, "from one shard into the next"),
        (lambda x: x.rot90(), real(4, 6), 1, "reversed by the rotation"),
    ],
)
def test_a_refusal_says_why(call: Any, local: torch.Tensor, dim: int, words: str) -> None:
    assert words in refusal(call, local, dim)
