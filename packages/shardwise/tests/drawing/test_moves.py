"""Transitions, types and plans drawn: read off the tables of the checker, and true of numbers."""

from __future__ import annotations

import pytest
import torch

from shardwise.drawing.mesh import row_major
from shardwise.drawing.plan_pictures import plan_picture
from shardwise.drawing.spread_tensor import MeshPoint
from shardwise.drawing.subjects import draw
from shardwise.drawing.symbols import held_after, held_under, senders
from shardwise.drawing.transition_pictures import transition_picture
from shardwise.drawing.type_pictures import TYPES, five_types, transition_table
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.transitions import TRANSITIONS
from shardwise.planner.plans import Plan, PlanStep
from shardwise.planner.route import plan
from shardwise.types.placement import R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

from .pictures import hold, tiles_of

ROWS = list(TRANSITIONS.values())


@pytest.mark.parametrize("row", TRANSITIONS.values(), ids=lambda row: f"{row.op} {row.src}-{row.dst}")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_transition_has_a_picture(row, ranks):
    hold(transition_picture(row, ranks))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_a_pending_extremum_is_not_drawn_as_a_sum(kind):
    text = str(draw(f"all_reduce P({kind}) -> R", mesh={"tp": 2}))
    assert f"a = {kind}(a₀, a₁), and so on" in text
    assert "sum" not in text
    assert "data goes to rank 0 from 1; rank 1 from 0" in text


def meant(place, holds):
    """The value that the ranks' tensors denote: what is said of each piece, a sum as the set of its addends."""
    if place in "RI":
        return {symbol.piece: {(symbol.piece, symbol.addend)} for symbol in holds[0]}
    found = {}
    for held in holds:
        for symbol in held:
            if not symbol.is_zero:
                found.setdefault(symbol.piece, set()).add((symbol.piece, symbol.addend))
    return found


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.op == "convert"], ids=lambda row: f"{row.op} {row.src}-{row.dst}"
)
def test_a_conversion_is_drawn_with_the_value_that_it_keeps(row):
    assert meant(row.dst, held_after(row, 3)) == meant(row.src, held_under(row.src, 3))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op} {row.src}-{row.dst}")
def test_data_moves_exactly_where_ranks_meet(row):
    if row.op != "all_to_all":
        assert any(s != t for s, t in senders(row, 3)) == row.meets(backward=False)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.op == "reinterpret"], ids=lambda row: f"{row.src}-{row.dst}"
)
def test_a_reinterpretation_is_drawn_with_the_bits_that_it_keeps(row):
    assert held_after(row, 3) == held_under(row.src, 3)


@pytest.mark.parametrize(
    ("text", "first", "backward"),
    [
        ("all_to_all S(0) -> S(1)", ["a0", "a1", "a2"], "all_to_all S(1) -> S(0)"),
        ("all_to_all S(1) -> S(0)", ["a0", "b0", "c0"], "all_to_all S(0) -> S(1)"),
        ("all_to_all S(-1) -> S(0)", ["a0", "b0", "c0"], "all_to_all S(0) -> S(-1)"),
        ("all_gather S(1) -> R", ["a"], "reduce_scatter P -> S(1)"),
        ("reduce_scatter P -> S(2)", ["a₀", "b₀", "c₀"], "all_gather S(2) -> R"),
    ],
)
def test_a_transition_is_drawn_with_the_dims_that_were_asked_for(text, first, backward):
    picture = draw(text).picture()
    hold(picture)
    assert picture.title == text
    assert f"backward: {backward}" in picture.notes
    assert [tile.lines[0] for tile in tiles_of(picture.block)][: len(first)] == first


def test_the_five_types_stand_with_their_duals():
    picture = five_types()
    hold(picture)
    assert len(TYPES) == 5
    for place in TYPES:
        assert f"{place!r} has a gradient of type {place.dual!r}" in picture.description


def test_the_table_has_every_way_that_is_not_a_composition():
    picture = transition_table()
    hold(picture)
    shown = {line.rstrip("*") for tile in tiles_of(picture.block) for line in tile.lines}
    for row in ROWS:
        is_of_sums = not row.src.startswith("P(")
        if is_of_sums and row.reads == row.src and not row.through and not row.is_noop:
            assert row.op in shown
            assert f"{row.op} from {row.src} to {row.dst}" in picture.description
    tile = next(tile for tile in tiles_of(picture.block) if "all_reduce" in tile.lines)
    assert tile.lines == ("all_reduce", "↩ all_reduce P→R")


def a_plan():
    dp, tp = (MeshPoint(name, layout) for name, layout in row_major({"dp": 2, "tp": 4}).items())
    first = TensorType.of({dp: R, tp: V}, PartitionSpec(None, tp))
    second = TensorType.of({dp: R, tp: V}, PartitionSpec(tp, None))
    last = TensorType.of({dp: R, tp: R})
    steps = (
        PlanStep("all_to_all", (tp,), first, second, (8, 2), (2, 8), 0, 48, 3, 1.2e-5),
        PlanStep("all_gather", (tp,), second, last, (2, 8), (8, 8), 0, 192, 3, 2e-5),
    )
    return Plan((8, 8), "float32", first, last, steps), [dp, tp]


def test_a_plan_shows_every_stage_and_who_needs_what():
    plan, mesh = a_plan()
    picture = plan_picture(plan, mesh)
    hold(picture)
    assert "1. all_to_all over tp, dim 0" not in picture.title
    numbers = [tile.lines for tile in tiles_of(picture.block) if tile.index is None]
    assert ("4",) in numbers  # a rank needs a quarter of another one's 16 elements
    assert ("16",) in numbers  # and in the all-gather all of them
    assert "one rank receives 240 B, in 32 us by the cost model" in picture.notes


def test_counts_of_elements_are_those_of_chunks():
    plan, mesh = a_plan()
    rows = torch.arange(64).reshape(8, 8)
    before, after = rows.chunk(4, 1), rows.chunk(4, 0)
    common = len(set(before[0].flatten().tolist()) & set(after[1].flatten().tolist()))
    assert (str(common),) in [tile.lines for tile in tiles_of(plan_picture(plan, mesh).block)]


def test_what_a_rank_needs_is_what_the_planner_says_that_it_receives():
    dp, tp = MeshAxis.of(2, 2), MeshAxis.of(2, 1)
    src = TensorType.of({dp: V, tp: V}, PartitionSpec(None, (dp, tp)))
    dst = TensorType.of({dp: V, tp: V}, PartitionSpec((dp, tp), None))
    found = plan((8, 8), "float32", src, dst)
    (step,) = found.steps
    picture = plan_picture(found, [dp, tp])
    table = [tile.lines[0] for tile in tiles_of(picture.block) if tile.index is None and tile.tone is None][-16:]
    received = [int(text) for text in table[::4] if text != "own"]  # the column of the first rank
    assert sum(received) * 4 == step.bytes
