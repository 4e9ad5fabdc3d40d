"""The least that a rank can hold, against every way to place the axes, with the lengths that torch.chunk gives."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

from shardwise.planner.holdings import NOWHERE, Holdings

SIZES = (2, 3, 4)
MANY = (2, 3, 2, 2, 4, 3)
SHAPES = [(5, 7), (24, 24), (1, 30, 2), (3, 10, 13)]


def numbers(bits):
    return [at for at in range(bits.bit_length()) if bits >> at & 1]


def first_length(length, ranks):
    """What is left of a dim on the first rank when one axis after the other cuts it."""
    for each in ranks:
        length = torch.arange(length).chunk(each)[0].numel()
    return length


def listed(sizes, shape, dims, cut, free, barred, off):
    found = []
    for places in itertools.product(dims, repeat=len(numbers(free))):
        placed = dict(zip(numbers(free), places, strict=True))
        if not any(barred >> axis & 1 and off >> dim & 1 for axis, dim in placed.items()):
            found.append(
                math.prod(
                    first_length(
                        length,
                        [sizes[at] for at in (*numbers(axes), *(axis for axis in placed if placed[axis] == dim))],
                    )
                    for dim, (length, axes) in enumerate(zip(shape, cut, strict=True))
                )
            )
    return min(found, default=NOWHERE)


@pytest.mark.parametrize("sizes", [SIZES, MANY], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_least_that_is_held_is_the_least_of_all_ways(shape, sizes):
    chance = random.Random(str(shape))
    dims = tuple(range(len(shape)))
    even = all(length % math.prod(sizes) == 0 for length in shape)
    holdings = Holdings(sizes, shape, dims, even=even)
    found = []
    for _ in range(200):
        cut, free = [0] * len(shape), 0
        for axis in range(len(sizes)):
            place = chance.randrange(len(shape) + 2)
            if place < len(shape):
                cut[place] |= 1 << axis
            elif place == len(shape) and free.bit_count() < 4:
                free |= 1 << axis
        barred = chance.randrange(1 << len(sizes)) & free
        off = chance.randrange(1 << len(shape)) if barred else 0
        found.append(holdings.least(tuple(cut), free, barred, off))
        assert found[-1] == listed(sizes, shape, dims, cut, free, barred, off), (cut, free, barred, off)
    assert NOWHERE in found
    assert len(set(found)) > 5


def test_of_many_ways_none_is_looked_at_and_nothing_above_the_least_is_said():
    holdings = Holdings((2,) * 6, (3, 5, 7), (0, 1, 2), even=False)
    said = holdings.least((0, 0, 0), 0b111111)
    assert said == -(-3 * 5 * 7 // 64)
    assert said <= min(
        math.prod(-(-length // 2 ** places.count(dim)) for dim, length in enumerate((3, 5, 7)))
        for places in itertools.product(range(3), repeat=6)
    )
