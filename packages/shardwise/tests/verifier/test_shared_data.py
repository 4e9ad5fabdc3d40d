"""Data of which the ranks' pieces overlap, while some of it nobody has, is shared out wrongly."""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.shared_data import overlapping_pieces

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
