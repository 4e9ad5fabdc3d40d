"""Meshes drawn: every rank is where its coordinates say, fibers and nodes are told apart."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.diagnostics.printing.printable import cells
from shardwise.drawing.layout import PIXELS
from shardwise.drawing.mesh import fibers, mesh_picture, rank_at, row_major, stays_inside
from shardwise.drawing.nesting import MOST_TILES
from shardwise.drawing.subjects import draw
from shardwise.drawing.text import text_of
from shardwise.mesh.layout import Layout

from .pictures import boxes_of, hold, tiles_of

MESHES = (
    st.lists(st.integers(1, 4), max_size=5)
    .filter(lambda sizes: math.prod(sizes) <= MOST_TILES)
    .map(lambda sizes: {f"a{at}": n for at, n in enumerate(sizes)})
)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(MESHES)
def test_every_rank_stands_where_its_coordinates_say(sizes):
    axes = row_major(sizes)
    places = {box.key: (box.x, box.y) for box in boxes_of(mesh_picture(axes), PIXELS) if box.key is not None}
    assert sorted(places) == list(range(math.prod(sizes.values())))
    names = list(sizes)
    across, down = names[::-1][::2], names[::-1][1::2]
    coordinates = {
        rank_at(axes, where): dict(zip(names, where, strict=True))
        for where in itertools.product(*(range(n) for n in sizes.values()))
    }
    for (one, where), (other, there) in itertools.combinations(coordinates.items(), 2):
        for level, order in ((across, 0), (down, 1)):
            mine, its = ([at[name] for name in reversed(level)] for at in (where, there))
            if mine == its:
                assert places[one][order] == places[other][order]
            else:
                assert (places[one][order] < places[other][order]) == (mine < its)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(MESHES, st.data())
def test_every_mesh_keeps_what_holds_for_pictures(sizes, data):
    highlight = data.draw(st.sampled_from([None, *sizes]))
    hold(mesh_picture(row_major(sizes), highlight=highlight, node_size=data.draw(st.sampled_from([None, 1, 2, 3, 8]))))


@pytest.mark.parametrize("width", [48, 60, 100])
@pytest.mark.parametrize("sizes", [(2,) * 5, (2,) * 7, (2, 3, 2, 2, 3), (3, 2, 2, 2, 2, 2)], ids=str)
def test_a_mesh_of_many_axes_is_folded_to_the_width_and_keeps_every_rank(sizes, width):
    axes = {f"a{at}": n for at, n in enumerate(sizes)}
    text = draw(axes).text(width)
    assert max(map(cells, text.splitlines()[2:])) <= width
    ranks = [int(rank) for line in text.splitlines() if "│" in line for rank in re.findall(r"(?<=│)\s*(\d+)", line)]
    assert sorted(ranks) == list(range(math.prod(sizes)))
    for name in axes:
        assert re.search(rf"\b{name} [→↓]", text)


def test_what_is_folded_stands_below_in_the_order_of_the_mesh():
    assert (
        draw({"a": 2, "b": 2, "c": 2}).text(20)
        == """\
mesh a=2, b=2, c=2: 8 ranks

a ↓
        c →
    b ↓   0   1
        ┌───┬───┐
      0 │ 0 │ 1 │
  0     ├───┼───┤
      1 │ 2 │ 3 │
        └───┴───┘

        ┌───┬───┐
      0 │ 4 │ 5 │
  1     ├───┼───┤
      1 │ 6 │ 7 │
        └───┴───┘"""
    )


def test_the_coordinates_of_one_axis_stand_in_one_column():
    lines = draw({"a": 2, "b": 2, "c": 2, "d": 2, "e": 2, "f": 2}).text().splitlines()
    heading = next(line.index("c ↓") for line in lines if "c ↓" in line)
    of_c = [line for line in lines if "├" in line]
    assert {line.index(line.split()[0]) for line in of_c} == {heading + 2}


def test_the_fibers_of_an_axis_are_told_apart_in_words_too():
    picture = mesh_picture(row_major({"dp": 2, "tp": 2}), highlight="dp")
    assert [cell.lines for cell in tiles_of(picture.block)] == [("0", "#0"), ("1", "#1"), ("2", "#0"), ("3", "#1")]
    assert "#0={0,2} #1={1,3}" in picture.notes[0]


def test_a_fiber_of_a_million_ranks_is_told_by_its_ends():
    (note,) = mesh_picture(row_major({"dp": 1 << 20}), highlight="dp").notes
    assert "#0={0,1,2,…,1048575}" in note
    (fiber,) = fibers(row_major({"dp": 1 << 20}), "dp")
    assert isinstance(fiber, range)


def test_a_mesh_that_does_not_count_row_by_row():
    axes = {"tp": Layout(4, 1), "dp": Layout(2, 4)}
    assert list(map(list, fibers(axes, "dp"))) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert fibers({"a": Layout((2, 2), (4, 1)), "b": Layout(2, 2)}, "a") == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert [cell.lines for cell in tiles_of(mesh_picture(axes).block)][:3] == [("0",), ("4",), ("1",)]


@pytest.mark.parametrize(
    ("sizes", "node", "inside"),
    [({"dp": 2, "tp": 8}, 8, {"tp"}), ({"dp": 2, "tp": 8}, 16, {"dp", "tp"}), ({"a": 2, "b": 3, "c": 2}, 4, {"c"})],
)
def test_which_axes_stay_inside_a_node(sizes, node, inside):
    axes = row_major(sizes)
    assert {name for name in axes if stays_inside(axes, name, node)} == inside


def test_a_mesh_as_text():
    assert (
        text_of(mesh_picture(row_major({"dp": 2, "tp": 3})))
        == """\
mesh dp=2, tp=3: 6 ranks

     tp →
dp ↓   0   1   2
     ┌───┬───┬───┐
   0 │ 0 │ 1 │ 2 │
     ├───┼───┼───┤
   1 │ 3 │ 4 │ 5 │
     └───┴───┴───┘"""
    )


def test_a_large_mesh_is_cut_short():
    picture = mesh_picture(row_major({"dp": 4096, "tp": 4096}))
    hold(picture)
    assert any(cell.lines == ("⋱",) for cell in tiles_of(picture.block))
    assert any(cell.lines == (str(4096 * 4096 - 1),) for cell in tiles_of(picture.block))
