"""Is the one rank of a launched job given what all ranks drew, and nothing where that can't be had?"""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.interop.running.recording import Key
from shardwise.verifier.comparison.traces import digests
from shardwise.verifier.records.batches import Batches, is_shared
from shardwise.verifier.records.draws import KeptDraws, RankDraw
from shardwise.verifier.runs.loading import Loading
from shardwise.verifier.runs.second_run import MOST_BYTES, DrawnData, answer_with, read_drawn, together


def drawn(*rows: int) -> Batches:
    return Batches({(0, 0): [(torch.tensor(rows), "name")]}, {0: 1}, iterated=True)


def test_batches_of_all_ranks_come_together_in_rank_order():
    made = pickle.loads(together(DrawnData(drawn(0, 1)), 3, lambda rank: answer_with(DrawnData(drawn(10 * rank)))))
    (rows, name) = made.batches.drawn[0, 0][0]
    assert rows.tolist() == [0, 1, 10, 20]
    assert name == "name"


def test_how_each_rank_draws_numbers_comes_in_rank_order_with_or_without_batches():
    key = Key("drawn", "dropout", None, 0)

    def of(rank: int, batches: Batches) -> DrawnData:
        return DrawnData(batches, ({key: RankDraw(torch.tensor([rank]), (4, rank + 1))},))

    for batches in (Batches(), drawn(1)):
        made = pickle.loads(together(of(0, batches), 3, lambda rank, batches=batches: answer_with(of(rank, batches))))
        assert [draws[key].state.item() for draws in made.draws] == [0, 1, 2]
        assert [draws[key].shape for draws in made.draws] == [(4, 1), (4, 2), (4, 3)]
        assert len(made.batches.drawn) == len(batches.drawn)


def test_draws_of_which_there_are_too_many_are_not_kept():
    kept = KeptDraws(room_bytes=16)
    for nth, count in enumerate((1, 2, 0, 0)):
        kept.keep(Key("drawn", "rand", None, nth), RankDraw(torch.zeros(8, dtype=torch.uint8), (1,)))
        assert len(kept.draws) == count


NOT_TO_BE_HAD = {
    "a rank keeps none": lambda rank: answer_with(DrawnData(Batches(iterated=True, partial=True))),
    "they do not fit together": lambda rank: answer_with(DrawnData(Batches({(0, 0): [torch.ones(2), torch.ones(2)]}))),
    "one can't be pickled": lambda rank: answer_with(DrawnData(Batches({(0, 0): [lambda: rank]}))),
    "they are too many": lambda rank: b"0" * (MOST_BYTES + 1),
}


@pytest.mark.parametrize("answer", NOT_TO_BE_HAD.values(), ids=NOT_TO_BE_HAD)
def test_what_makes_no_global_batches_is_left(answer):
    assert together(DrawnData(drawn(0)), 2, answer) == b""


def test_ranks_that_draw_nothing_give_nothing():
    assert together(DrawnData(), 2, lambda rank: answer_with(DrawnData())) == b""


def test_digests_count_batches_and_tell_equal_ones():
    one, same, other = (digests(drawn(*rows)) for rows in ((1, 2), (1, 2), (1, 3)))
    assert is_shared([one, same])
    assert not is_shared([one, other])
    assert not any(isinstance(batch, torch.Tensor) for batch in one.drawn[0, 0])
    assert len(one.drawn[0, 0]) == 1
    assert one.iterated


def test_no_more_is_kept_than_there_is_room_for():
    data = [torch.ones(8) for _ in range(6)]
    for room, count in ((10**6, 6), (6 * 32, 6), (5 * 32, 0)):
        loading = Loading(None, keeps=True, kept_bytes=room)
        with loading.watching():
            assert len(list(DataLoader(data, batch_size=None))) == 6
        assert sum(map(len, loading.batches.drawn.values())) == count
        assert loading.batches.partial is (count == 0)


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(pickle.dumps([1]))
    (tmp_path / "broken").write_bytes(b"no pickle")
    for name in ("other", "broken", "missing"):
        with pytest.raises(SpmdValueError, match=name) as caught:
            read_drawn(str(tmp_path / name))
        assert caught.value.code == "SW905"
