"""Sharded tensors drawn: each tile names exactly the ranks that hold its element, as cutting and adding up says."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import shardwise
from shardwise.drawing.layout import PIXELS, TEXT, Box, Label, marks_of
from shardwise.drawing.mesh import rank_at, row_major
from shardwise.drawing.nesting import MOST_TILES
from shardwise.drawing.spread_tensor import Pieces, SpreadTensor
from shardwise.drawing.subjects import draw
from shardwise.mesh.axis import MeshAxis
from shardwise.types.notation import TypedShape
from shardwise.types.placement import P, R, S
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

from .pictures import hold, tiles_of


@st.composite
def sharded(draw_):
    """A mesh and the text of a type over it."""
    sizes = {name: draw_(st.integers(1, 3)) for name in ("pp", "dp", "tp")[: draw_(st.integers(1, 3))]}
    shape = draw_(st.lists(st.integers(1, 5), max_size=3))
    entries = [[] for _ in shape]
    rest = {}
    for name in draw_(st.permutations(list(sizes))):
        kind = draw_(st.sampled_from(["R", "I", "P", "V", "S", ""]))
        if kind == "S" and shape:
            entries[draw_(st.integers(0, len(shape) - 1))].append(name)
        elif kind and kind != "S":
            rest[name] = kind
    dims = [f"{n}@({','.join(axes)})" if axes else str(n) for n, axes in zip(shape, entries, strict=True)]
    braces = ", ".join(f"{name}: {kind}" for name, kind in rest.items())
    return sizes, shape, entries, rest, f"f32[{', '.join(dims)}] {{{braces}}}"


def held_by_each_rank(sizes, shape, entries):
    """What torch.chunk gives every rank, by its coordinates."""
    whole = torch.arange(math.prod(shape)).reshape(shape)
    found = {}
    for at in itertools.product(*map(range, sizes.values())):
        own, place = whole, dict(zip(sizes, at, strict=True))
        for dim, axes in enumerate(entries):
            for name in axes:
                chunks = own.chunk(sizes[name], dim)
                own = chunks[place[name]] if place[name] < len(chunks) else own.narrow(dim, 0, 0)
        found[rank_at(row_major(sizes), at)] = place, set(own.flatten().tolist())
    return found


@settings(deadline=None)
@given(sharded())
def test_a_tile_names_the_ranks_that_hold_its_element(case):
    sizes, shape, entries, rest, text = case
    picture = draw(text, mesh=sizes, limit=8).picture()
    held = held_by_each_rank(sizes, shape, entries)
    number = torch.arange(math.prod(shape)).reshape(shape)
    apart = [name for name, kind in rest.items() if kind == "V"]
    partial = [name for name, kind in rest.items() if kind == "P"]
    tiles = [tile for tile in tiles_of(picture.block) if tile.index is not None]
    count = math.prod(shape) * math.prod(sizes[name] for name in apart)
    assume(count <= MOST_TILES)  # of more, elements between equal ones are one tile
    assert len(tiles) == count
    for tile in tiles:
        if "…" in tile.lines[0]:
            continue
        groups = [[int(rank) for rank in group.split(" + ")] for group in tile.lines[0].split(" = ")]
        ranks = [rank for group in groups for rank in group]
        element = int(number[tile.index])
        first = held[ranks[0]][0]
        expected = {
            rank
            for rank, (place, own) in held.items()
            if element in own and all(place[name] == first[name] for name in apart)
        }
        assert set(ranks) == expected
        assert len(set(ranks)) == len(ranks)
        for group in groups:
            same = [{n: at for n, at in held[rank][0].items() if n not in partial} for rank in group]
            assert all(one == same[0] for one in same)


@settings(deadline=None)
@given(sharded())
def test_a_note_has_the_ranks_that_stand_in_the_picture(case):
    sizes, shape, entries, rest, text = case
    held = held_by_each_rank(sizes, shape, entries)
    notes = draw(text, mesh=sizes).picture().notes
    for name in set(sizes) - {axis for axes in entries for axis in axes}:
        if sizes[name] == 1:
            assert not [note for note in notes if re.search(rf"\b{name}\b", note)], "one rank alone is no relation"
            continue
        (note,) = [note for note in notes if re.search(rf"\b{name}\b", note)]
        groups = re.findall(r"\d+(?: [=+] \d+)+", note)
        assert bool(groups) == (rest.get(name) != "V")
        for group in groups:
            ranks = [int(rank) for rank in re.split(r" [=+] ", group)]
            assert {held[rank][0][name] for rank in ranks} == set(range(sizes[name]))
            others = [{other: at for other, at in held[rank][0].items() if other != name} for rank in ranks]
            assert all(one == others[0] for one in others)
            assert math.prod(shape) == 0 or held[ranks[0]][1]
            assert (" + " in group) == (rest.get(name) == "P")


@pytest.mark.parametrize(
    ("text", "tile", "note"),
    [
        (
            "f32[2] {dp: R, tp: P(max)}",
            "max(0, 1) = max(2, 3)",
            "maximum of the sheets, still to be taken: max(0, 1)",
        ),
        (
            "f32[2] {dp: P, tp: P(max)}",
            "max(0, 1) + max(2, 3)",
            "sum of the sheets, still to be taken: 0 + 2, 1 + 3",
        ),
        ("f32[2@dp] {tp: P(avg)}", "avg(0, 1)", "mean of the sheets, still to be taken: avg(0, 1), avg(2, 3)"),
    ],
)
def test_only_a_sum_is_drawn_with_a_plus(text, tile, note):
    picture = draw(text, mesh={"dp": 2, "tp": 2}).picture()
    assert next(tiles_of(picture.block)).lines == (tile,)
    assert any(note in one for one in picture.notes)


def test_the_number_of_an_outer_index_stands_beside_the_middle_of_its_tiles():
    picture = draw("f32[2, 3, 2@tp, 4]", mesh={"tp": 2}).picture()
    for m in (TEXT, PIXELS):
        marks = list(marks_of(picture.block, m))
        tiles = [mark for mark in marks if isinstance(mark, Box) and mark.index is not None]
        ticks = [mark for mark in marks if isinstance(mark, Label) and mark.text == "1"]
        rows = [box for box in tiles if box.index[0] == 1]
        middle = (min(box.y for box in rows) + max(box.y + box.height for box in rows)) / 2
        assert any(abs(tick.y + m.line / 2 - middle) <= 1 for tick in ticks)
        columns = [box for box in tiles if box.index[1] == 1]
        across = (min(box.x for box in columns) + max(box.x + box.width for box in columns)) / 2
        assert any(abs(tick.x + m.words("1") / 2 - across) <= 1 for tick in ticks)
        assert len({mark.x for mark in marks if isinstance(mark, Box) and mark.lines == ("tp=0",)}) == 1


@pytest.mark.slow
@settings(deadline=None)
@given(sharded())
def test_what_holds_for_every_picture_holds_for_sharded_tensors(case):
    sizes, *_, text = case
    hold(draw(text, mesh=sizes).picture())


@given(st.integers(0, 40), st.lists(st.integers(1, 4), max_size=3))
def test_pieces_are_those_of_chunks_of_chunks(length, counts):
    pieces = Pieces(length, tuple(counts))
    whole = {(): list(range(length))}
    for count in counts:
        step = {place: -(-len(one) // count) for place, one in whole.items()}
        whole = {
            (*place, at): one[at * step[place] : (at + 1) * step[place]]
            for place, one in whole.items()
            for at in range(count)
        }
    assert {at: list(range(one.start, one.stop)) for at in whole for one in [pieces.at(at)]} == whole
    assert len(pieces) == len(whole)
    assert [(one.at, list(range(one.start, one.stop))) for one in pieces.held()] == [
        (place, one) for place, one in whole.items() if one
    ]
    assert pieces.lengths() == Counter(map(len, whole.values()))


def test_a_large_tensor_is_drawn_by_its_shards():
    picture = draw("f32[4096@dp, 4096] {tp: P}", mesh={"dp": 4, "tp": 8}).picture()
    hold(picture)
    text = str(draw("f32[4096@dp, 4096] {tp: P}", mesh={"dp": 4, "tp": 8}))
    assert "1024:2048" in text
    assert "+ tp=7" in text
    assert len(list(tiles_of(picture.block))) < 100


def test_a_hundred_thousand_ranks_are_drawn_at_once():
    picture = draw("f32[1000000@(dp,tp), 8] {pp: R}", mesh={"pp": 16, "dp": 512, "tp": 16}).picture()
    assert len(list(tiles_of(picture.block))) < 1000
    assert SpreadTensor(TypedShape("f32", (4,), TensorType.of({})), []).holders({}) == "0"


def test_two_axes_seen_as_one():
    both, tp = MeshAxis.of(8, 1), MeshAxis.of(4, 1)
    with shardwise.set_current_mesh({"dp": MeshAxis.of(2, 4), "tp": tp}):
        typed = TypedShape("f32", (8,), TensorType.of({both: shardwise.V}, PartitionSpec(both)))
        tiles = [tile for tile in tiles_of(draw(typed, local=False).picture().block) if tile.index is not None]
    assert [tile.lines for tile in tiles] == [(str(rank),) for rank in range(8)]


def test_the_sizes_of_a_tensor_are_those_of_one_rank():
    with shardwise.set_current_mesh({"dp": MeshAxis.of(2, 4), "tp": MeshAxis.of(4, 1)}):
        x = shardwise.assert_type(torch.ones(2, 4), {"dp": S(0), "tp": P})
        assert str(draw(x)).startswith("f32[4@dp, 4] {tp: P} on dp=2, tp=4\n")
        assert draw(shardwise.typeof(x)).picture().title == draw("f32[4@dp, 4] {tp: P}").picture().title
        assert draw("f32[2@dp, 4] {tp: P}", local=True).picture().title == "f32[4@dp, 4] {tp: P} on dp=2, tp=4"
        y = shardwise.assert_type(torch.ones(2), {"dp": R, "tp": R})
        assert re.search(r"R over dp", str(draw(y)))
