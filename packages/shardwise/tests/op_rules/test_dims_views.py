"""Views that regroup, insert, drop or stretch dims, against the numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardwise.op_rules.registry import families, lookup

from .movement import Move, check, complexes, move, real, refusal
from .test_dims_permuting import MOVES as PERMUTING

BITS = "the bits of addends are not added: P -> P holds for pairs of float64 as complex128 only"

MOVES = [
    move("view", lambda x: x.view(-1, x.shape[2]), real(4, 6, 4), kept="0>0 2>1"),
    move("view", lambda x: x.view(x.shape[0] * x.shape[1], x.shape[2]), real(4, 6, 4), kept="0>0 2>1"),
    move("view", lambda x: x.view(x.shape[0], -1), real(4, 6, 4), kept="0>0 1>1"),
    move("view", lambda x: x.view(x.shape[0], x.shape[1] // 2, 2), real(4, 8), kept="0>0 1>1", even=True),
    move("view", lambda x: x.view(x.shape[0], -1, 2), real(4, 8), kept="0>0 1>1", even=True),
    move("view", lambda x: x.view(-1, 2, x.shape[1]), real(8, 6), kept="0>0 1>2", even=True),
    move("view", lambda x: x.view(-1, 2), real(4, 8), kept="0>0", even=True),
    move("reshape", lambda x: x.reshape(-1), real(4, 6, 4), kept="0>0"),
    move("reshape", lambda x: x.reshape(()), real(1, 1), kept=""),
    move("view", lambda x: x.view(x.shape[0], 1, x.shape[1]), real(4, 6), kept="0>0 1>2"),
    move("view", lambda x: x.view(x.shape[0], x.shape[2]), real(4, 1, 6), kept="0>0 2>1"),
    move("reshape", lambda x: torch.reshape(x, shape=(-1,)), real(4, 6), kept="0>0"),
    move("view", lambda x: x.view(torch.int32), real(4, 6), kept="0>0 1>1"),
    move("view", lambda x: x.view(torch.complex128), real(4, 8), kept="0>0 1>1", even=True, missing=BITS),
    move("view", lambda x: x.view(dtype=torch.int64), real(4, 8), kept="0>0 1>1"),
    move("view_as", lambda x: x.view_as(torch.empty(x.shape[0] * x.shape[1])), real(4, 6), kept="0>0"),
    move("reshape_as", lambda x: x.reshape_as(torch.empty(x.shape[0] * x.shape[1])), real(4, 6), kept="0>0"),
    move("flatten", torch.flatten, real(4, 6, 4), kept="0>0"),
    move("flatten", lambda x: x.flatten(1), real(4, 6, 4), kept="0>0 1>1"),
    move("flatten", lambda x: x.flatten(0, -2), real(4, 6, 4), kept="0>0 2>1"),
    move("flatten", lambda x: x.flatten(), real(), kept=""),
    move("flatten", lambda x: x.flatten(0, 1), real(1, 6, 4), kept="1>0 2>1"),
    move("ravel", torch.ravel, real(4, 6), kept="0>0"),
    move("unflatten", lambda x: x.unflatten(0, (-1, 2)), real(8, 6), kept="0>0 1>2", even=True),
    move("unflatten", lambda x: x.unflatten(-1, (x.shape[1] // 2, -1)), real(4, 8), kept="0>0 1>1", even=True),
    move("unflatten", lambda x: x.unflatten(1, (x.shape[1] // 2, 2)), real(4, 8), kept="0>0 1>1", even=True),
    move("squeeze", torch.squeeze, real(4, 1, 6), kept="0>0 2>1", even=True),
    move("squeeze", lambda x: x.squeeze(1), real(4, 1, 6), kept="0>0 2>1"),
    move("squeeze", lambda x: x.squeeze(0), real(4, 1, 6), kept="0>0 2>2", even=True),
    move("squeeze", lambda x: torch.squeeze(x, dim=(1, -1)), real(4, 1, 6, 1), kept="0>0 2>1"),
    move("unsqueeze", lambda x: x.unsqueeze(1), real(4, 6), kept="0>0 1>2"),
    move("unsqueeze", lambda x: x.unsqueeze(-1), real(4, 6), kept="0>0 1>1"),
    move("expand", lambda x: x.expand(x.shape[0], 3, -1), real(4, 1, 6), kept="0>0 2>2"),
    move("expand", lambda x: x.expand(3, -1, -1), real(4, 6), kept="0>1 1>2"),
    move("expand", lambda x: x.expand(3, *x.shape), real(4, 6), kept="0>1 1>2"),
    move("broadcast_to", lambda x: torch.broadcast_to(x, (2, *x.shape)), real(4, 6), kept="0>1 1>2"),
    move("broadcast_to", lambda x: x.broadcast_to((*x.shape[:1], 2)), real(4, 1), kept="0>0"),
    move("expand_as", lambda x: x.expand_as(torch.empty(3, *x.shape)), real(4, 6), kept="0>1 1>2"),
    move("as_strided", lambda x: x.as_strided((2, 2), (1, 1)), real(4, 6), kept=""),
    move("view_as_real", torch.view_as_real, complexes(4, 6), kept="0>0 1>1"),
    move("view_as_complex", torch.view_as_complex, real(4, 5, 2), kept="0>0 1>1"),
    move("view_copy", lambda x: torch.view_copy(x, (-1,)), real(4, 6), kept="0>0"),
    move("expand_copy", lambda x: torch.expand_copy(x, (3, *x.shape)), real(4, 6), kept="0>1 1>2"),
    move("squeeze_copy", lambda x: torch.squeeze_copy(x, 1), real(4, 1, 6), kept="0>0 2>1"),
    move("unsqueeze_copy", lambda x: torch.unsqueeze_copy(x, 1), real(4, 6), kept="0>0 1>2"),
    move("as_strided_copy", lambda x: torch.as_strided_copy(x, (2, 2), (1, 1)), real(4, 6), kept=""),
    move("view_as_real_copy", torch.view_as_real_copy, complexes(4, 6), kept="0>0 1>1"),
    move("view_as_complex_copy", lambda x: torch.view_as_complex_copy(x.detach()), real(4, 5, 2), kept="0>0 1>1"),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", MOVES, ids=str)
def test_a_view_admits_what_the_numbers_admit(case: Move) -> None:
    check(case)


def test_every_rule_with_labels_is_tried() -> None:
    tried = {rule.op for case in (*MOVES, *PERMUTING) if (rule := lookup(case.op)) is not None}
    assert tried == {rule.op for rule in families()["views"] if rule.labels is not None}


@pytest.mark.parametrize(
    ("call", "local", "dim", "words"),
    [
        (lambda x: x.view(8, 3), real(4, 6), 1, "would interleave"),
        (lambda x: x.view(4, 6), real(4, 1, 6), 1, "its size on this rank is 1, so nobody can tell"),
        (lambda x: x.view(6), real(1, 6), 0, "its size on this rank is 1, so nobody can tell"),
        (lambda x: x.view(1, 1, 6), real(1, 6), 0, "another number of such dims"),
        (lambda x: x.squeeze(), real(1, 6), 0, "cannot be dropped"),
        (lambda x: x.expand(3, 6), real(1, 6), 0, "a dim of size 1 that is broadcast cannot be a shard"),
        (lambda x: x.as_strided((4,), (1,)), real(4), 0, "by strides"),
        (torch.view_as_complex, real(4, 2), 1, "one complex number"),
    ],
)
def test_a_refusal_says_why(call: Any, local: torch.Tensor, dim: int, words: str) -> None:
    assert words in refusal(call, local, dim)
