"""A rank pads its samples to the longest of its own, the run on one rank to the longest of all."""

from __future__ import annotations

import pytest
import torch

from shardwise.oracle.observed_layout import observed_layouts
from shardwise.oracle.reassemble import Grid
from shardwise.verifier.layouts.padded_inputs import lengthened

GRID = Grid.of({"dp": 2, "tp": 2})
ROWS = [[5, 1, 2], [3, 4], [6], [7, 8]]


def padded(rows, fill):
    return torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=fill)


def held(first, second):
    """By rank: data-parallel rank 0 has ``first``, 1 has ``second``."""
    return {rank: (first, second)[dp] for rank, (dp, _) in enumerate(GRID.coordinates)}


def explained(pieces, whole):
    axes = list(GRID.axes.values())
    return any(next(observed_layouts(one, axes, whole, 0.0), None) is not None for one in lengthened(pieces, whole))


@pytest.mark.parametrize("fill", [0, -100])
def test_shorter_pieces_are_parts_of_the_whole_but_for_what_it_is_filled_with(fill):
    assert explained(held(padded(ROWS[:2], fill), padded(ROWS[2:], fill)), padded(ROWS, fill))
    assert explained(held(padded(ROWS[::2], fill), padded(ROWS[1::2], fill)), padded(ROWS, fill))


def test_masks_and_features_are_padded_in_any_dim_but_that_of_the_samples():
    whole = torch.zeros(4, 3, 3, dtype=torch.bool)
    for at, row in enumerate(ROWS):
        whole[at, : len(row), : len(row)] = True
    assert explained(held(whole[:2], whole[2:, :2, :2]), whole)
    features = torch.randn(4, 3, 5) * whole[:, :, :1]
    assert explained(held(features[:2], features[2:, :2]), features)
    features = padded(ROWS, 0).float()[..., None].expand(-1, -1, 5).transpose(1, 2)
    assert explained(held(features[:2], features[2:, :, :2]), features)


def test_other_samples_and_what_is_cut_off_are_not():
    whole = padded(ROWS, 0)
    assert not explained(held(padded(ROWS[:2], 0), padded(ROWS[:2], 0)[:, :2]), whole)
    assert not explained(held(whole[:2, :2], whole[2:, :2]), whole), "the last of a longest row is lost"
    assert not explained(held(whole[:2], whole[2:, :1]), whole)


def test_tensors_of_another_number_of_dims_are_left_alone():
    whole = padded(ROWS, 0)
    assert list(lengthened(held(whole[:2, None], whole[2:, None]), whole)) == []
    assert list(lengthened(held(torch.zeros(()), torch.ones(())), torch.ones(()))) == []
