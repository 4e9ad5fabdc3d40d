"""Data that is a part of the whole while a step is taken: where it lies is found by its values, and kept."""

from __future__ import annotations

import pytest
import torch

from shardwise.verifier.runs.swapped_data import SwappedData, part_of

WHOLE = torch.arange(24.0).view(6, 4)


@pytest.mark.parametrize(
    ("part", "ranges"),
    [
        (WHOLE[2:4], ((8, 16),)),
        (WHOLE[:, 1:3], tuple((4 * row + 1, 4 * row + 3) for row in range(6))),
        (WHOLE.flatten()[5:17], ((5, 17),)),
        (WHOLE[4:], ((16, 24),)),
    ],
    ids=["rows", "columns", "in a row", "the last"],
)
def test_a_part_is_found_where_it_is(part, ranges):
    held = part_of(part, WHOLE)
    assert held is not None
    assert (held.shape, held.ranges) == (tuple(WHOLE.shape), ranges)
    elements = torch.cat([WHOLE.flatten()[start:stop] for start, stop in held.ranges])
    assert torch.equal(elements, part.flatten())


@pytest.mark.parametrize("part", [WHOLE[2:4] + 0.5, WHOLE[[0, 2]], WHOLE[:0], torch.zeros(7, 4), WHOLE[:2, :2]])
def test_what_is_no_part_is_nowhere(part):
    assert part_of(part, WHOLE) is None


def test_rows_that_start_alike_are_told_by_all_of_them():
    whole = torch.tensor([[1.0], [1.0], [2.0]])
    held = part_of(torch.tensor([[1.0], [2.0]]), whole)
    assert held is not None
    assert held.ranges == ((1, 3),)


def test_later_it_is_where_it_was():
    swapped = SwappedData()
    first = swapped.held("weight", WHOLE[2:4], WHOLE)
    assert swapped.held("weight", WHOLE[2:4] * 0.9, WHOLE) is first
    assert swapped.held("other", WHOLE[2:4] * 0.9, WHOLE) is None
