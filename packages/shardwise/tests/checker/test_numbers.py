"""Which numbers may be added to a pending sum? Only zero, whatever class it is of and whatever came before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shardwise.checker import typecheck

from .helpers import make, place, refused

PAIRS = [
    (0, 2),
    (0.0, 2.0),
    (False, True),
    (0j, 1j),
    (np.float32(0), np.float32(2)),
    (np.float64(0), np.float64(2)),
    (np.int64(0), np.int64(2)),
]


@pytest.mark.parametrize(("zero", "number"), PAIRS, ids=lambda value: repr(value))
def test_zero_may_be_added_and_does_not_open_the_way_for_other_numbers(tp_mesh: Any, zero: Any, number: Any) -> None:
    with typecheck():
        x = make("P")
        assert place(x + zero) == place(x + zero) == place(x * number) == "P"
        with refused("SW113", "once per rank"):
            x + number
        with refused("SW113", "once per rank"):
            number - x


def test_what_is_neither_tensor_nor_number_is_a_term_of_the_sum_all_the_same(tp_mesh: Any) -> None:
    with typecheck(), refused("SW113", "once per rank"):
        make("P") + np.True_


@pytest.mark.parametrize("options", [{"keepdim": True}, {"keepdim": False}])
def test_switches_are_no_terms(tp_mesh: Any, options: dict[str, bool]) -> None:
    with typecheck():
        assert place(torch.sum(make("P"), 0, **options)) == "P"
