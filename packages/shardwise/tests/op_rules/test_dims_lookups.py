"""Look-ups and sequences in global mode: the rules say of every sharding what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shardwise.oracle.global_types import check_claims
from shardwise.types.placement import P, R, S

from .agreement import randn
from .global_ruleset import ask


def table(*shape: int) -> torch.Tensor:
    return randn(shape)[0].sort(-1).values


VALUES = randn((4, 2))[0]
LOOKUPS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "bucketize": (torch.bucketize, [VALUES, table(5)], 3),
    "bucketize by name": (lambda b, x: torch.bucketize(boundaries=b, input=x), [table(5), VALUES], 3),
    "searchsorted": (torch.searchsorted, [table(5), VALUES], 3),
    "searchsorted rows": (lambda t, x: torch.searchsorted(t, x, right=True), [table(4, 5), VALUES], 3),
    "searchsorted sorter": (
        lambda t, x, order: torch.searchsorted(t, x, sorter=order),
        [table(4, 5), VALUES, table(4, 5).argsort(-1)],
        3,
    ),
    "one_hot": (lambda x: F.one_hot(x, 3), [torch.tensor([[0, 1], [2, 1], [1, 0], [0, 0]])], 3),
    "unravel_index": (lambda x: torch.unravel_index(x, (2, 3)), [torch.tensor([[0, 1], [5, 1], [1, 3], [0, 4]])], 3),
    "segment_reduce": (
        lambda x, lengths: torch.segment_reduce(x, "max", lengths=lengths),
        [*randn((4, 5)), torch.tensor([1, 3])],
        2,
    ),
    "pad_sequence": (lambda *t: torch.nn.utils.rnn.pad_sequence(list(t)), randn((4, 5), (2, 5)), 2),
    "pad_sequence rows": (
        lambda *t: torch.nn.utils.rnn.pad_sequence(list(t), batch_first=True),
        randn((2, 5), (4, 5)),
        2,
    ),
    "nonzero": (torch.nonzero, randn((4, 5)), 1),
    "argwhere": (torch.argwhere, randn((4, 5)), 1),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_is_placed_as_the_numbers_say(name: str) -> None:
    """One set of values, because another would not be sorted. SW112: padding with zeros is linear, as no row says."""
    fn, tensors, covered = LOOKUPS[name]
    report = check_claims(fn, tensors, ask, value_sets=1)
    assert not report.wrong, "\n".join(map(str, report.wrong))
    missing = [each for each in report.missing if not each.reason.startswith("SW112")]
    assert not missing, "\n".join(map(str, missing))
    assert report.covered == covered


def test_positions_in_shards_of_a_table_add_up() -> None:
    assert ask(torch.bucketize, [VALUES, table(5)], (R, S(0))) == (P,)
    assert ask(torch.searchsorted, [table(4, 5), VALUES], (S(1), R)) == (P,)
