"""Pieces, diagonals, copies and borders, against the numbers."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shardwise.op_rules.registry import families, lookup

from .movement import Move, check, move, real, refusal

MOVES = [
    move("narrow", lambda x: x.narrow(1, 1, 2), real(4, 8), kept="0>0"),
    move("slice_copy", lambda x: torch.slice_copy(x, 1, 0, sys.maxsize), real(4, 8), kept="0>0 1>1"),
    move("narrow_copy", lambda x: torch.narrow_copy(x, 1, 1, 2), real(4, 8), kept="0>0"),
    move(
        "split_with_sizes_copy",
        lambda x: torch.split_with_sizes_copy(x, [1, x.shape[1] - 1], 1),
        real(4, 5),
        kept="0>0",
    ),
    move("split_copy", lambda x: torch.split_copy(x, 2, 0), real(4, 5), kept="1>1"),
    move("narrow", lambda x: torch.narrow(x, 0, torch.tensor(1), 1), real(4, 8), kept="1>1"),
    move("slice", lambda x: torch.ops.aten.slice(x, 1, 0, 2), real(4, 8), kept="0>0", even=True),
    move("slice", lambda x: torch.ops.aten.slice(x, 1, 0, 2**62), real(4, 5), kept="0>0 1>1"),
    move("slice", lambda x: torch.ops.aten.slice(x, 1, 0, 2**62, 2), real(4, 5), kept="0>0"),
    move("slice", lambda x: torch.ops.aten.slice(x, 0), real(4, 5), kept="0>0 1>1"),
    move("slice_copy", lambda x: torch.slice_copy(x, 1, 1, 2), real(4, 5), kept="0>0"),
    move("slice_copy", lambda x: torch.slice_copy(x, 1, 0), real(4, 5), kept="0>0 1>1"),
    move("select", lambda x: x.select(1, 0), real(4, 5), kept="0>0"),
    move("select", lambda x: torch.select(x, -1, 0), real(4, 5), kept="0>0"),
    move("select_copy", lambda x: torch.select_copy(x, 0, 1), real(4, 5), kept="1>0"),
    move("split", lambda x: x.split(2, 1), real(4, 8), kept="0>0"),
    move(
        "split",
        lambda x: torch.split(x, [1, 1], dim=0) if x.shape[0] == 2 else torch.split(x, [1, x.shape[0] - 1], dim=0),
        real(4, 8),
        kept="1>1",
    ),
    move("split", lambda x: x.split([x.shape[0]]), real(4, 5), kept="0>0 1>1"),
    move("split_with_sizes", lambda x: x.split_with_sizes([2, x.shape[1] - 2], 1), real(4, 8), kept="0>0"),
    move("unsafe_split", lambda x: torch.unsafe_split(x, 2, 1), real(4, 8), kept="0>0"),
    move("chunk", lambda x: x.chunk(2, 1), real(4, 8), kept="0>0"),
    move("chunk", lambda x: x.chunk(1, 1), real(4, 8), kept="0>0 1>1"),
    move("tensor_split", lambda x: x.tensor_split(2, 1), real(4, 5), kept="0>0"),
    move("tensor_split", lambda x: torch.tensor_split(x, (1, 2), dim=1), real(4, 5), kept="0>0"),
    move("tensor_split", lambda x: torch.tensor_split(x, 1, dim=1), real(4, 5), kept="0>0 1>1"),
    move("tensor_split", lambda x: torch.tensor_split(x, torch.tensor([1]), dim=1), real(4, 5), kept="0>0"),
    move("hsplit", lambda x: torch.hsplit(x, [1]), real(4, 5, 4), kept="0>0 2>2"),
    move("vsplit", lambda x: torch.vsplit(x, [1]), real(4, 5, 4), kept="1>1 2>2"),
    move("dsplit", lambda x: x.dsplit([1]), real(4, 5, 4), kept="0>0 1>1"),
    move("hsplit", lambda x: x.hsplit([1]), real(4), kept=""),
    move("unbind", lambda x: x.unbind(1), real(4, 5), kept="0>0"),
    move("__iter__", lambda x: list(x), real(4, 5), kept="1>0"),
    move("unbind_copy", lambda x: torch.unbind_copy(x, 1), real(4, 5), kept="0>0"),
    move("unbind", lambda x: torch.unbind(x, dim=-1), real(4, 5), kept="0>0"),
    move("diagonal", lambda x: x.diagonal(), real(4, 5, 4), kept="2>0"),
    move("diagonal", lambda x: x.diagonal(1, 0, 2), real(4, 5, 4), kept="1>0"),
    move("linalg.diagonal", lambda x: torch.linalg.diagonal(x), real(4, 5, 4), kept="0>0"),
    move("diagonal_copy", lambda x: torch.diagonal_copy(x, 0, 1, 2), real(4, 5, 4), kept="0>0"),
    move("tril", torch.tril, real(4, 5, 4), kept="0>0"),
    move("triu", lambda x: x.triu(1), real(4, 4), kept=""),
    move("diag", torch.diag, real(4), kept=""),
    move("diag", torch.diag, real(4, 5), kept=""),
    move("diagflat", torch.diagflat, real(4, 5), kept=""),
    move("diag_embed", torch.diag_embed, real(4, 5), kept="0>0"),
    move("diag_embed", lambda x: torch.diag_embed(x, 0, 0, 2), real(4, 5), kept="0>1"),
    move("unfold", lambda x: x.unfold(1, 2, 1), real(4, 5), kept="0>0"),
    move("unfold", lambda x: x.unfold(1, 2, 2), real(4, 8), kept="0>0 1>1", even=True),
    move("unfold", lambda x: F.unfold(x, 2), real(2, 4, 5, 5), kept="0>0 1>1"),
    move("unfold", lambda x: F.unfold(x, 2, padding=1), real(4, 5, 5), kept="0>0"),
    move("unfold_copy", lambda x: torch.unfold_copy(x, 1, 2, 1), real(4, 5), kept="0>0"),
    move(
        "im2col",
        lambda x: torch.ops.aten.im2col(x, [2, 2], [1, 1], [0, 0], [1, 1]),
        real(2, 4, 5, 5),
        kept="0>0 1>1",
    ),
    move("repeat", lambda x: x.repeat(2, 1), real(4, 5), kept="1>1"),
    move("repeat", lambda x: x.repeat(2, 1, 1), real(4, 5), kept="0>1 1>2"),
    move("repeat", lambda x: x.repeat((1, 3)), real(4, 5), kept="0>0"),
    move("tile", lambda x: x.tile(2), real(4, 5), kept="0>0"),
    move("tile", lambda x: torch.tile(x, (2, 1, 1)), real(4, 5), kept="0>1 1>2"),
    move("tile", lambda x: x.tile((1,)), real(4, 5), kept="0>0 1>1"),
    move("repeat_interleave", lambda x: x.repeat_interleave(2, 1), real(4, 6), kept="0>0 1>1"),
    move("repeat_interleave", lambda x: x.repeat_interleave(2, dim=0), real(4, 6), kept="0>0 1>1"),
    move("repeat_interleave", lambda x: x.repeat_interleave(2), real(4, 6), kept="0>0"),
    move("repeat_interleave", lambda x: x.repeat_interleave(2), real(4), kept="0>0"),
    move(
        "repeat_interleave",
        lambda x, n: torch.repeat_interleave(x, n, 1),
        real(4, 5),
        torch.tensor([1, 2, 0, 1, 3]),
        kept="0.>0 10>1",
    ),
    move(
        "repeat_interleave",
        lambda x, n: torch.repeat_interleave(x, n),
        real(5),
        torch.tensor([1, 2, 0, 1, 3]),
        kept="00>0",
    ),
    move(
        "repeat_interleave",
        lambda x, n: torch.repeat_interleave(x, n, 0),
        real(6, 4),
        torch.tensor([2]),
        kept="0.>0 1.>1",
    ),
    move("repeat_interleave", lambda n: torch.repeat_interleave(n), torch.tensor([1, 2, 0, 1, 3]), kept=""),
    move("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), real(4, 8, 4, 2), kept="0>0 1>1 2>2 3>3"),
    move("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), real(16, 2, 4), kept="0>0 1>1 2>2"),
    move("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), real(4, 4, 8, 8), kept="0>0 1>1 2>2 3>3", even=True),
    move("channel_shuffle", lambda x: F.channel_shuffle(x, 2), real(4, 8, 4, 4), kept="0>0 2>2 3>3"),
    move("pad", lambda x: F.pad(x, (1, 0)), real(4, 5), kept="0>0"),
    move("pad", lambda x: F.pad(x, (0, 0, 1, 1)), real(4, 5), kept="1>1"),
    move("pad", lambda x: F.pad(x, (1, 0), value=2.0), real(4, 5), kept="0>0"),
    move("pad", lambda x: F.pad(x, (1, 0), mode="reflect"), real(4, 5, 5), kept="0>0 1>1"),
    move("pad", lambda x: F.pad(x, (-1, 0)), real(4, 5), kept="0>0"),
    move("constant_pad_nd", lambda x: torch.constant_pad_nd(x, (1, 0)), real(4, 5), kept="0>0"),
    move("combinations", torch.combinations, real(5), kept=""),
    move("combinations", lambda x: torch.combinations(x, 1), real(5), kept="0>0"),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", MOVES, ids=str)
def test_a_cut_admits_what_the_numbers_admit(case: Move) -> None:
    check(case)


def test_every_rule_with_labels_is_tried() -> None:
    tried = {rule.op for case in MOVES if (rule := lookup(case.op)) is not None}
    labelled = (*families()["slicing"], *families()["repeating"])
    assert tried == {rule.op for rule in labelled if rule.labels is not None}


@pytest.mark.parametrize(
    ("call", "local", "dim", "words"),
    [
        (lambda x: x.narrow(0, 0, 2), real(4, 6), 0, "counted from the start of each shard"),
        (lambda x: x.select(0, 0), real(4, 6), 0, "one of every shard"),
        (lambda x: x.unbind(), real(4, 6), 0, "separate tensors"),
        (lambda x: x.unfold(0, 2, 1), real(4, 6), 0, "windows"),
        (lambda x: x.diagonal(), real(4, 4), 1, "runs through both dims"),
        (lambda x: x.tril(), real(4, 4), 0, "every shard starts counting at 0"),
        (lambda x: x.repeat(2, 1), real(4, 6), 0, "the copies of its own shard"),
        (lambda x: F.pad(x, (1, 0)), real(4, 6), 1, "every shard would get the border"),
        (lambda x: F.channel_shuffle(x, 2), real(1, 4, 2, 2), 1, "interleaved"),
    ],
)
def test_a_refusal_says_why(call: Any, local: torch.Tensor, dim: int, words: str) -> None:
    assert words in refusal(call, local, dim)
