"""Offsets and numbers of packed documents, which every rank counts from 0, are those of the run on one rank."""

from __future__ import annotations

import pytest
import torch

from shardwise.oracle.reassemble import Grid
from shardwise.verifier.layouts.counted_anew import counted_anew

GRID = Grid.of({"dp": 2, "tp": 2})
LENGTHS = [3, 2, 4, 3]


def offsets(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def documents(lengths):
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def held(first, second):
    """By rank: data-parallel rank 0 has ``first``, 1 has ``second``."""
    return {rank: (first, second)[dp] for rank, (dp, _) in enumerate(GRID.coordinates)}


def judged(pieces, whole):
    return counted_anew(pieces, list(GRID.axes.values()), whole)


@pytest.mark.parametrize("made", [offsets, documents, lambda lengths: offsets(lengths).int()])
def test_what_each_rank_counts_from_0_is_a_part_of_the_whole(made):
    assert judged(held(made([3, 2]), made([4, 3])), made(LENGTHS))


@pytest.mark.parametrize("made", [offsets, documents])
def test_other_lengths_another_order_and_ranks_that_should_agree_are_not(made):
    assert not judged(held(made([3, 2]), made([4, 4])), made(LENGTHS))
    assert not judged(held(made([4, 3]), made([3, 2])), made(LENGTHS))
    assert not judged(held(made([3, 2]), made([3, 2])), made(LENGTHS))
    assert not judged(held(made([3, 2]), made([4, 3])) | {3: made([4, 3]) + 1}, made(LENGTHS))


def test_only_whole_numbers_in_one_dim_count():
    assert not judged(held(offsets([3, 2]).float(), offsets([4, 3]).float()), offsets(LENGTHS).float())
    assert not judged(held(documents([3, 2])[None], documents([4, 3])[None]), documents(LENGTHS)[None])
    assert not judged(held(torch.tensor([0]), torch.tensor([0])), torch.tensor([0, 1]))


def test_numbers_that_only_begin_alike_are_no_part():
    assert not judged(held(torch.tensor([0, 1, 0]), torch.tensor([0, 1, 0])), torch.tensor([0, 1, 0, 1, 2, 2]))
