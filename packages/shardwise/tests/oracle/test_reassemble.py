"""Dealing a global tensor out to ranks and putting it together again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardwise import I, P, R, S, V, set_current_mesh
from shardwise.interop.annotations.annotating import asserted_type
from shardwise.oracle.reassemble import Grid, Unreadable, deal, differences, is_within, reassemble
from shardwise.types import PartitionSpec

GRID = Grid.of({"dp": 2, "tp": 3})
WHOLE = torch.arange(12 * 6, dtype=torch.float64).reshape(12, 6)


def type_of(*claims: Any) -> Any:
    with set_current_mesh(dict(GRID.axes)):
        return asserted_type(claims, WHOLE.ndim)


def dealt(type: Any, value: torch.Tensor = WHOLE) -> list[torch.Tensor]:
    return deal(value, type, GRID, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dp", [R, I, P, S(0), S(1)])
@pytest.mark.parametrize("tp", [R, I, P, S(0), S(1)])
def test_putting_together_undoes_dealing_out(dp, tp):
    claim = {"dp": dp, "tp": tp}
    if dp == tp and isinstance(dp, S):
        claim = PartitionSpec(*[("dp", "tp") if dim == dp.dim else None for dim in range(2)])
    type = type_of(claim)
    pieces = dealt(type)
    assert len(pieces) == 6
    assert torch.allclose(reassemble(pieces, type, GRID), WHOLE)


def test_the_outer_axis_cuts_first():
    pieces = dealt(type_of(PartitionSpec(("dp", "tp"), None)))
    assert [int(piece[0, 0]) // 6 for piece in pieces] == [0, 2, 4, 6, 8, 10]
    pieces = dealt(type_of(PartitionSpec(("tp", "dp"), None)))
    assert [int(piece[0, 0]) // 6 for piece in pieces] == [0, 4, 8, 2, 6, 10]


def test_a_pending_sum_differs_on_every_rank():
    first, *others = dealt(type_of({"dp": P, "tp": P}))
    assert not any(torch.equal(first, other) for other in others)


def test_integers_are_split_into_integers():
    value = WHOLE.to(torch.int64)
    type = type_of({"dp": R, "tp": P})
    pieces = dealt(type, value)
    assert {piece.dtype for piece in pieces} == {torch.int64}
    assert torch.equal(reassemble(pieces, type, GRID), value)


def test_uneven_pieces_are_refused():
    with pytest.raises(Unreadable, match="dim 1 of size 5 cannot be cut into 2"):
        dealt(type_of({"dp": S(1), "tp": R}), WHOLE[:, :5])


@pytest.mark.parametrize("place", [R, I])
def test_ranks_that_should_be_equal_are_compared_bit_by_bit(place):
    type = type_of({"dp": R, "tp": place})
    pieces = [piece.clone() for piece in dealt(type)]
    pieces[4][0, 0] += 1e-9
    with pytest.raises(Unreadable, match="ranks 0 and 1 of it differ"):
        reassemble(pieces, type, GRID)
    assert torch.allclose(reassemble(pieces, type, GRID, tolerance=1e-6), WHOLE)


def test_not_a_number_equals_itself():
    value = torch.full((2, 2), torch.nan)
    assert reassemble([value] * 6, type_of({"dp": R, "tp": R}), GRID).isnan().all()


def test_varying_pieces_cannot_be_put_together():
    with pytest.raises(Unreadable, match="varies over"):
        reassemble([WHOLE] * 6, type_of({"dp": R, "tp": V}), GRID)


def test_an_axis_without_a_claim_cannot_be_put_together():
    with pytest.raises(Unreadable, match="says nothing over"):
        reassemble([WHOLE] * 6, type_of({"dp": R}), GRID)


def test_pieces_of_other_shapes_do_not_fit():
    with pytest.raises(Unreadable, match="do not fit together"):
        reassemble([WHOLE, WHOLE[:1], WHOLE] * 2, type_of({"dp": R, "tp": P}), GRID)


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "other",
    [
        [[1.0, 2.0], [3.0, 4.0]],
        [[1.0, 2.0], [3.0, 4.25]],
        [[1.5, 2.0], [3.0, 4.0]],
        [[1.0, INF], [3.0, 4.0]],
        [[1.0, NAN], [3.0, 4.0]],
    ],
    ids=["equal", "near", "the first row apart", "infinite", "not a number"],
)
@pytest.mark.parametrize("apart", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_within_is_what_the_differences_say(other, apart, dtype):
    ones = [
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        torch.tensor([[1.0, INF], [3.0, 4.0]]),
        torch.tensor([[1.0, NAN], [3.0, 4.0]]),
    ]
    there = torch.tensor(other, dtype=dtype)
    for one in ones:
        assert is_within(one, there, apart) == (not bool((differences(one, there) > apart).any()))
        assert is_within(one[0, 0], there[0, 0], apart) == (abs(float(one[0, 0] - there[0, 0])) <= apart)
