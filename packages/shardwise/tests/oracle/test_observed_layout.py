"""Every layout that is true of the values is observed, and none that is not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardwise.oracle.observed_layout import Along, ObservedLayout, Way, layout_said, observed_layouts
from shardwise.oracle.reassemble import Grid, Unreadable
from shardwise.types.placement import P, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import TensorType

GRID = Grid.of({"dp": 2, "tp": 2})
DP, TP = GRID.axes["dp"], GRID.axes["tp"]
GRID_TP = Grid.of({"tp": 2}).axes["tp"]
WHOLE = torch.randn(8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def observed(pieces, whole=WHOLE, axes=(DP, TP), apart=1e-9):
    return [
        {(step.axis, step.way, step.dim) for step in layout.steps}
        for layout in observed_layouts(dict(enumerate(pieces)), axes, whole, apart)
    ]


def by_coordinates(piece):
    return [piece(dp, tp) for dp, tp in GRID.coordinates]


@pytest.mark.parametrize(
    ("piece", "first"),
    [
        (lambda dp, tp: WHOLE, {(DP, Way.EQUAL, 0), (TP, Way.EQUAL, 0)}),
        (lambda dp, tp: WHOLE.chunk(2, 1)[tp], {(DP, Way.EQUAL, 0), (TP, Way.SHARD, 1)}),
        (lambda dp, tp: WHOLE.chunk(2, 0)[dp].chunk(2, 1)[tp], {(DP, Way.SHARD, 0), (TP, Way.SHARD, 1)}),
        (lambda dp, tp: WHOLE.chunk(4, 0)[2 * dp + tp], {(DP, Way.SHARD, 0), (TP, Way.SHARD, 0)}),
        (lambda dp, tp: WHOLE[dp::2], {(DP, Way.STRIDED, 0), (TP, Way.EQUAL, 0)}),
        (lambda dp, tp: WHOLE * (0.25, 0.75)[dp], {(DP, Way.SUM, 0), (TP, Way.EQUAL, 0)}),
        (lambda dp, tp: WHOLE * (0.5, 1.5)[tp], {(DP, Way.EQUAL, 0), (TP, Way.MEAN, 0)}),
        (
            lambda dp, tp: torch.cat([part.chunk(2, 1)[tp] for part in WHOLE.chunk(3, 1)], 1),
            {(DP, Way.EQUAL, 0), (TP, Way.MERGED, 1)},
        ),
        (
            lambda dp, tp: torch.cat([WHOLE.chunk(4, 0)[dp], WHOLE.chunk(4, 0)[3 - dp]]),
            {(DP, Way.FOLDED, 0), (TP, Way.EQUAL, 0)},
        ),
    ],
    ids=[
        "equal",
        "columns",
        "rows and columns",
        "one dim over both",
        "every second",
        "addends",
        "terms",
        "merged",
        "folded",
    ],
)
def test_the_layout_that_made_the_pieces_is_observed_first(piece, first):
    assert observed(by_coordinates(piece))[0] == first


def test_query_key_and_value_of_unequal_sizes_are_found_in_a_merged_weight():
    query, key, value = WHOLE[:, :8], WHOLE[:, 8:10], WHOLE[:, 10:]
    pieces = [torch.cat([part.chunk(2, 1)[tp] for part in (query, key, value)], 1) for _, tp in GRID.coordinates]
    (layout,) = observed_layouts(dict(enumerate(pieces)), (DP, TP), WHOLE, 0.0)
    assert layout.steps[1] == Along(TP, Way.MERGED, 1, (4, 1, 1))


def test_a_layout_in_halves_says_so_of_a_tensor_that_has_none():
    layout = ObservedLayout((Along(GRID_TP, Way.FOLDED, 0),))
    with pytest.raises(Unreadable, match="no two halves"):
        layout.combined({0: torch.ones(1), 1: torch.ones(1)})


def test_a_padded_vocabulary_is_seen_through():
    padded = torch.cat([WHOLE, torch.zeros(2, 12, dtype=WHOLE.dtype)])
    (layout,) = observed_layouts(dict(enumerate(padded.chunk(2, 0))), (GRID_TP,), WHOLE, 0.0)
    assert layout == ObservedLayout((Along(GRID_TP, Way.SHARD, 0),), {0: 2})


def test_pieces_that_no_layout_explains_have_none():
    wrong = [piece.clone() for piece in WHOLE.chunk(2, 0)]
    wrong[1][0, 0] += 1
    assert observed(wrong, axes=(GRID_TP,)) == []


def test_pieces_in_the_wrong_order_are_not_a_shard():
    assert observed(list(reversed(WHOLE.chunk(2, 0))), axes=(GRID_TP,)) == []


def test_zeros_are_equal_and_addends_too():
    zeros = torch.zeros(4)
    found = observed([zeros, zeros], zeros, axes=(GRID_TP,))
    assert found == [{(GRID_TP, way, 0)} for way in (Way.EQUAL, Way.SUM)]


def test_integers_are_never_addends():
    ones = torch.ones(4, dtype=torch.int64)
    assert observed([ones, 0 * ones], ones, axes=(GRID_TP,)) == []


@given(
    dims=st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([None, 0, 1])),
    seed=st.integers(0, 1000),
)
def test_any_shard_of_distinct_values_is_observed_exactly(dims, seed):
    whole = torch.randperm(64, generator=torch.Generator().manual_seed(seed)).double().view(8, 8)

    def piece(dp, tp):
        value = whole
        for index, dim in zip((dp, tp), dims, strict=True):
            value = value if dim is None else value.chunk(2, dim)[index]
        return value

    wanted = {
        (axis, Way.EQUAL if dim is None else Way.SHARD, dim or 0) for axis, dim in zip((DP, TP), dims, strict=True)
    }
    plain = [one for one in observed(by_coordinates(piece), whole) if all(way is not Way.MERGED for _, way, _ in one)]
    assert plain == [wanted]


def test_what_a_type_says_leaves_out_other_layouts():
    pieces = {2 * dp + tp: WHOLE.chunk(2, 0)[tp] for dp in range(2) for tp in range(2)}
    said = TensorType.of({DP: R, TP: V})
    (layout,) = observed_layouts(pieces, (DP, TP), WHOLE, 0.0, said)
    assert layout.steps == (Along(DP, Way.EQUAL), Along(TP, Way.SHARD, 0))
    assert layout.says(layout_said(TensorType.of({DP: R, TP: V}, PartitionSpec(TP, None))).steps)
    assert not list(observed_layouts(pieces, (DP, TP), WHOLE, 0.0, TensorType.of({DP: P, TP: V})))
    assert not list(
        observed_layouts(pieces, (DP, TP), WHOLE, 0.0, TensorType.of({DP: R, TP: V}, PartitionSpec(None, TP)))
    )


def test_marks_say_which_rank_holds_an_element():
    pieces = {rank: torch.full((2, 4), rank) for rank in range(4)}
    placed = layout_said(TensorType.of({DP: R, TP: V}, PartitionSpec(TP, None))).placed(pieces)
    assert placed[:, 0].tolist() == [0, 0, 1, 1]
