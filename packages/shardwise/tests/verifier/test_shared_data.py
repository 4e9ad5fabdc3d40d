"""Data of which the ranks' pieces overlap, while some of it nobody has, is shared out wrongly."""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.shared_data import overlapping_pieces, repeated_data

ROWS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
KEY = Key("input", "input 0 of Model", None)


def said(*pieces, whole=ROWS):
    record = Record(KEY, UNTYPED, "f32[4, 3]", pieces[0])
    found = overlapping_pieces(KEY, record, dict(enumerate(pieces)), whole)
    return found and (found.ranks, found.said)


@pytest.mark.parametrize("dim", [0, 1])
def test_windows_that_move_by_one_row_a_rank_overlap(dim):
    whole = ROWS.movedim(0, dim)
    ranks, text = said(whole.narrow(dim, 0, 4), whole.narrow(dim, 1, 4), whole=whole)
    assert ranks == (0, 1)
    assert f"both have row 1 of the run on one rank (dim {dim}), and no rank has row 5" in text


def test_tokens_of_packed_documents_are_rows_too():
    tokens = torch.tensor([5, 3, 3, 1, 4, 1, 5, 9, 2, 6])
    assert said(tokens[:5], tokens[2:8], whole=tokens)[0] == (0, 1)


def test_halos_copies_gaps_and_other_data_do_not_overlap_wrongly():
    assert said(ROWS[:5], ROWS[3:]) is None  # a halo: together they are the whole
    assert said(ROWS[:4], ROWS[:4], ROWS[4:], ROWS[4:]) is None  # two ranks of a tensor-parallel group each
    assert said(ROWS[:3], ROWS[5:]) is None  # rows that nobody has, and none that two have
    assert said(ROWS[:4], torch.ones(4, 3)) is None
    assert said(ROWS[:4], ROWS[1:5, :2]) is None
    assert said(torch.tensor(1.0), torch.tensor(2.0), whole=torch.tensor(3.0)) is None


def test_pieces_that_may_lie_anywhere_say_nothing():
    assert said(torch.zeros(4), torch.zeros(5), whole=torch.zeros(8)) is None
    assert said(torch.zeros(4, 0), torch.zeros(5, 0), whole=torch.zeros(8, 0)) is None


def recorded(*values):
    return [Record(Key("data", "mul 0", None, nth), UNTYPED, "", value) for nth, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("mesh", "pieces", "own"),
    [
        ({"dp": 2}, [ROWS[:4], ROWS[:4]], [ROWS[:4], ROWS[4:]]),
        ({"dp": 2}, [ROWS[::2], ROWS[::2]], [ROWS[::2], ROWS[1::2]]),
        ({"dp": 2, "tp": 2}, [ROWS[4:]] * 4, [ROWS[:4], ROWS[:4], ROWS[4:], ROWS[4:]]),
        ({"tp": 4, "dp": 2}, [ROWS[:, :1]] * 8, None),
        ({"dp": 4}, [ROWS[:2]] * 4, [ROWS[:2], ROWS[2:4], ROWS[4:6], ROWS[6:]]),
    ],
    ids=["chunks", "strided", "over one of two axes", "over no axis", "over all ranks"],
)
def test_data_that_all_ranks_have_the_same_piece_of_could_be_shared_out(mesh, pieces, own):
    found = repeated_data([recorded(piece) for piece in pieces], recorded(ROWS), mesh)
    if own is None:
        assert not found
        return
    ((source, repeated),) = found.items()
    assert source == Key("data", "mul 0", None)
    assert "no rank has piece" in repeated.wrong.said
    (given,) = repeated.pieces.values()
    assert all(torch.equal(one, other) for one, other in zip(given, own, strict=True))


def test_each_turn_of_a_loop_is_given_its_own_pieces():
    other = ROWS + 1
    run = recorded(ROWS[:4], other[:4])
    ((_, repeated),) = repeated_data([run, run], recorded(ROWS, other), {"dp": 2}).items()
    assert [key.nth for key in repeated.pieces] == [1, 2]
    assert torch.equal(repeated.pieces[run[1].key][1], other[4:])


def test_data_that_is_shared_out_is_whole_or_is_not_on_every_rank_is_no_candidate():
    shared, whole, alone = [recorded(ROWS[:4]), recorded(ROWS[4:])], [recorded(ROWS)] * 2, recorded(ROWS)
    assert not repeated_data(shared, alone, {"dp": 2})
    assert not repeated_data(whole, alone, {"dp": 2})
    assert not repeated_data([recorded(ROWS[:4]), []], alone, {"dp": 2})
