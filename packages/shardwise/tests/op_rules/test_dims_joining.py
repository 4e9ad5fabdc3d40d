"""Tensors side by side, stacked or spread over a common shape, against the numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardwise.op_rules.registry import families, lookup

from .movement import Move, check, move, real, refusal

PENDING = "whether a part is empty is not asked when sums are pending"

MOVES = [
    move("cat", lambda x, y: torch.cat([x, y]), real(4, 5), real(4, 5), kept="11>1"),
    move("cat", lambda x, y: torch.cat((x, y), dim=-1), real(4, 5), real(4, 4), kept="00>0"),
    move("cat", lambda x: torch.cat([x]), real(4, 5), kept="0>0 1>1"),
    move("cat", lambda x, y: torch.concat((x, y), axis=1), real(4, 5), real(4, 4), kept="00>0"),
    move("cat", lambda x, y: torch.cat([x, y]), real(4, 5), real(0), kept="0.>0 1.>1", missing=PENDING),
    move("stack", lambda x, y: torch.stack([x, y]), real(4, 5), real(4, 5), kept="00>1 11>2"),
    move("stack", lambda x, y: torch.stack([x, y], -1), real(4, 5), real(4, 5), kept="00>0 11>1"),
    move("hstack", lambda x, y: torch.hstack([x, y]), real(4, 5), real(4, 4), kept="00>0"),
    move("hstack", lambda x, y: torch.hstack([x, y]), real(4), real(5), kept=""),
    move("hstack", lambda x, y: torch.hstack([x, y]), real(), real(), kept=""),
    move("vstack", lambda x, y: torch.vstack([x, y]), real(4, 5), real(4, 5), kept="11>1"),
    move("vstack", lambda x, y: torch.vstack([x, y]), real(4), real(4), kept="00>1"),
    move("vstack", lambda x, y: torch.vstack([x, y]), real(4), real(5, 4), kept="01>1"),
    move("dstack", lambda x, y: torch.dstack([x, y]), real(4, 5), real(4, 5), kept="00>0 11>1"),
    move("dstack", lambda x, y: torch.dstack([x, y]), real(4), real(4), kept="00>1"),
    move("dstack", lambda x, y: torch.dstack([x, y]), real(4, 5, 4), real(4, 5, 4), kept="00>0 11>1"),
    move("dstack", lambda x, y: torch.dstack([x, y]), real(4), real(1, 4), kept="01>1"),
    move("column_stack", lambda x, y: torch.column_stack([x, y]), real(4, 5), real(4, 4), kept="00>0"),
    move("column_stack", lambda x, y: torch.column_stack([x, y]), real(4), real(4), kept="00>0"),
    move("column_stack", lambda x, y: torch.column_stack([x, y]), real(4), real(4, 5), kept="00>0"),
    move("block_diag", lambda x, y: torch.block_diag(x, y), real(4, 5), real(4, 4), kept=""),
    move("cartesian_prod", lambda x, y: torch.cartesian_prod(x, y), real(4), real(6), kept="0.>0", even=True),
    move("cartesian_prod", lambda x: torch.cartesian_prod(x), real(4), kept="0>0"),
    move(
        "broadcast_tensors",
        lambda x, y: torch.broadcast_tensors(x, y),
        real(4, 5),
        real(5),
        kept="0.>0 10>1",
    ),
    move(
        "broadcast_tensors",
        lambda x, y: torch.broadcast_tensors(x, y),
        real(4, 1),
        real(5),
        kept=".0>1 0.>0",
    ),
    move(
        "meshgrid",
        lambda x, y: torch.meshgrid(x, y, indexing="ij"),
        real(4),
        real(5),
        kept=".0>1 0.>0",
    ),
    move(
        "meshgrid",
        lambda x, y, z: torch.meshgrid([x, y, z], indexing="xy"),
        real(4),
        real(5),
        real(4),
        kept="..0>2 .0.>0 0..>1",
    ),
    move("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), real(4), real(), kept="0.>0"),
    move("atleast_1d", torch.atleast_1d, real(4), kept="0>0"),
    move("atleast_2d", torch.atleast_2d, real(4), kept="0>1"),
    move("atleast_3d", torch.atleast_3d, real(4), kept="0>1"),
    move("atleast_3d", torch.atleast_3d, real(4, 5), kept="0>0 1>1"),
    move("atleast_3d", lambda x, y: torch.atleast_3d(x, y), real(4), real(4), kept=".0>.1 0.>.1 00>1"),
    move(
        "atleast_2d",
        lambda x, y: torch.atleast_2d([x, y]),
        real(4),
        real(4, 5),
        kept=".0>.0 .1>.1 0.>.1 00>01 01>1",
    ),
]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", MOVES, ids=str)
def test_a_join_admits_what_the_numbers_admit(case: Move) -> None:
    check(case)


def test_every_rule_with_labels_is_tried() -> None:
    tried = {rule.op for case in MOVES if (rule := lookup(case.op)) is not None}
    assert tried == {rule.op for rule in families()["joining"] if rule.labels is not None}


@pytest.mark.parametrize(
    ("call", "local", "dim", "words"),
    [
        (lambda x: torch.cat([x, x]), real(4, 6), 0, "the shards of the parts would interleave"),
        (lambda x: torch.hstack([x, x]), real(4), 0, "the shards of the parts would interleave"),
        (lambda x: torch.block_diag(x, x), real(4, 6), 0, "rows and columns of its own"),
    ],
)
def test_a_refusal_says_why(call: Any, local: torch.Tensor, dim: int, words: str) -> None:
    assert words in refusal(call, local, dim)
