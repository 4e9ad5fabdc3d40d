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
from shardwise.drawing.layout import PIXELS, TEXT, Label, marks_of, size_of
from shardwise.drawing.model import Look
from shardwise.drawing.nesting import MOST_TILES
from shardwise.drawing.svg import svg_of
from shardwise.drawing.tensors import element_grid
from shardwise.drawing.text import text_of
from shardwise.mesh.index_map import IndexMap

from .pictures import boxes_of, hold, tiles_of

SHAPES = st.lists(st.integers(1, 4), max_size=5)


@pytest.mark.slow
@settings(deadline=None)
@given(SHAPES)
def test_every_element_stands_once_where_indexing_says(shape):
    x = torch.arange(math.prod(shape)).reshape(shape)
    picture = shardwise.draw(x, limit=4).picture()
    for m in (TEXT, PIXELS):
        boxes = {box.index: box for box in boxes_of(picture, m) if box.index is not None}
        if math.prod(shape) <= MOST_TILES:
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


@pytest.mark.slow
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


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("subject", "mesh"),
    [
        (f"f32[{','.join('2' * 12)}]", None),
        (f"f32[{','.join('3' * 9)}@dp]", {"dp": 3}),
        (f"f32[{','.join('2' * 64)}]", None),
        (torch.zeros([2] * 12), None),
        (IndexMap.compact([2] * 14), None),
        ({f"a{at}": 2 for at in range(12)}, None),
    ],
    ids=["dims", "sharded", "as many as there can be", "a tensor", "digits", "axes"],
)
def test_of_many_dims_the_outer_ones_are_drawn_at_their_first_place(subject, mesh):
    picture = shardwise.draw(subject, mesh=mesh).picture()
    assert 128 < len([box for box in boxes_of(picture, TEXT) if box.look is Look.PLAIN and box.lines]) <= 2 * MOST_TILES
    labels = [mark.text for mark in marks_of(picture.block, TEXT) if isinstance(mark, Label)]
    start = next(at for at, text in enumerate(labels) if text.startswith("along "))
    words = labels[start : next(at for at, text in enumerate(labels) if text.endswith("drawn:")) + 1]
    assert " ".join(words).endswith("only the first place is drawn:")
    for drawn in (text_of(picture), svg_of(picture)):
        assert all(line in drawn for line in words)


def test_what_is_deeper_than_tensors_are_is_refused():
    with pytest.raises(ValueError, match="at most 64 dims or axes, and here are 65"):
        shardwise.draw(f"f32[{','.join('1' * 65)}]")
