"""Tensors drawn: every element that is drawn stands where indexing says, whatever the number of dims."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise
from shardwise.drawing.fitting import fitted
from shardwise.drawing.layout import PIXELS, TEXT, size_of
from shardwise.drawing.tensors import element_grid

from .pictures import boxes_of, hold, tiles_of

SHAPES = st.lists(st.integers(1, 4), max_size=5)


@settings(deadline=None)
@given(SHAPES)
def test_every_element_stands_once_where_indexing_says(shape):
    x = torch.arange(math.prod(shape)).reshape(shape)
    picture = shardwise.draw(x, limit=4).picture()
    for m in (TEXT, PIXELS):
        boxes = {box.index: box for box in boxes_of(picture, m) if box.index is not None}
        if math.prod(shape) <= 256:
            assert set(boxes) == set(itertools.product(*map(range, shape)))
        for index, box in boxes.items():
            assert box.lines == (str(x[index].item()),)
        # The last dim, the third last and so on run across, outermost first; the others run down.
        across = {index: index[::-1][::2][::-1] for index in boxes}
        down = {index: index[::-1][1::2][::-1] for index in boxes}
        for one, other in itertools.islice(itertools.combinations(boxes, 2), 3000):
            for at, place in ((across, "x"), (down, "y")):
                here, there = getattr(boxes[one], place), getattr(boxes[other], place)
                assert (here < there) == (at[one] < at[other])
                assert (here == there) == (at[one] == at[other])


NAMES = ["a<b", "&", '"', "x" * 30, "日本"]


@settings(deadline=None)
@given(SHAPES, st.integers(3, 9))
def test_what_holds_for_every_picture_holds_for_tensors(shape, limit):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    hold(shardwise.draw(x, limit=limit, names=NAMES[: len(shape)]).picture())


def test_what_folding_makes_no_narrower_is_not_folded():
    picture = shardwise.draw(torch.full((1, 4, 2, 1, 2), -0.07283), limit=3, names=NAMES).picture()
    wide = size_of(picture.block, TEXT).width
    assert fitted(picture, wide - 1, TEXT) == picture
    hold(picture)


def test_only_what_is_drawn_is_read():
    read = []
    tiles = list(tiles_of(element_grid((4096, 4096), lambda index: read.append(index) or "0")))
    assert len(read) == 49
    assert (4095, 4095) in read
    assert [tile for tile in tiles if tile.lines == ("⋱",)]


def test_a_tensor_of_many_dims_is_cut_short():
    tiles = list(tiles_of(shardwise.draw(torch.zeros([6] * 8)).picture().block))
    assert len(tiles) < 7000


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (torch.tensor(3), "3"),
        (torch.tensor([1.5, float("nan")]), "nan"),
        (torch.tensor([True]), "True"),
        (torch.tensor([1 + 2j]), "1+2j"),
        (torch.zeros(0, 3), "no elements: the shape is [0, 3]"),
        (torch.ones(2, 2, device="meta"), "the tensor has no elements in memory"),
        (torch.ones(3).to_sparse(), "the elements lie in no dense array"),
        (torch.nn.Parameter(torch.ones(2)), "1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_tensor_has_a_picture(x, shown):
    assert shown in str(shardwise.draw(x))


def test_drawing_a_tensor_is_no_operation_of_the_program():
    with shardwise.typecheck() as result:
        shardwise.draw(torch.ones(2, 2))
    assert result is None or getattr(result, "checked", 0) == 0
