"""Samples taken one by one, and positions found in a shard: with global types neither refused nor claimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .helpers import operand, place

BATCH = "f32[4@tp, 6]"


def rows_of(x: torch.Tensor) -> torch.Tensor:
    (row,) = torch.where(x[:, 0] > 0)
    return x[row]


def found(x: torch.Tensor) -> torch.Tensor:
    return x[torch.nonzero(x[:, 0] > 0)[:, 0]]


def judged(call: Callable[[torch.Tensor], object], *, strict: bool = False) -> tuple[list[str], list[str], object]:
    """The codes of what is refused, what is said not to be judged, and the result."""
    collector, x = Collector(), operand(BATCH)
    with checking(strict=strict, local=False, collect=collector) as session:
        result = call(x)
    return [one.code for one in collector.result().findings], list(session.own_elements), result


@pytest.mark.parametrize(
    "call",
    [
        lambda x: sum(row.sum() for row in x),
        lambda x: [row + 1 for row, _ in zip(x, range(9), strict=False)],
        rows_of,
        found,
        lambda x: torch.zeros_like(x).index_add(0, torch.where(x[:, 0] > 0)[0], rows_of(x)),
    ],
    ids=["a loop", "a zip", "where", "nonzero", "written back"],
)
def test_what_each_rank_counts_for_itself_is_not_judged(tp_mesh: Any, call: Any) -> None:
    codes, unjudged, _ = judged(call)
    assert codes == []
    assert unjudged
    assert all("counts from 0 (" in one for one in unjudged)


@pytest.mark.parametrize("call", [lambda x: x.unbind(0), lambda x: x[0], lambda x: x.softmax(0)])
def test_what_one_device_has_elsewhere_is_refused(tp_mesh: Any, call: Any) -> None:
    codes, unjudged, _ = judged(call)
    assert codes == ["SW405"]
    assert unjudged == []


def test_where_every_operand_has_to_have_a_type_nothing_is_left_open(tp_mesh: Any) -> None:
    codes, unjudged, _ = judged(list, strict=True)
    assert (codes, unjudged) == (["SW405"], [])


def test_a_loop_over_what_is_not_cut_is_judged(tp_mesh: Any) -> None:
    codes, unjudged, row = judged(lambda x: next(iter(x.t())))
    assert (codes, unjudged, place(row)) == ([], [], "V")
