"""Is the one rank of a launched job given what all ranks drew, and nothing where that can't be had?"""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.verifier.comparison.traces import digests
from shardwise.verifier.records.batches import Batches, is_shared
from shardwise.verifier.runs.loading import Loading
from shardwise.verifier.runs.second_run import MOST_BYTES, answer_with, read_batches, together


def drawn(*rows: int) -> Batches:
    return Batches({(0, 0): [(torch.tensor(rows), "name")]}, {0: 1}, iterated=True)


def test_batches_of_all_ranks_come_together_in_rank_order():
    made = pickle.loads(together(drawn(0, 1), 3, lambda rank: answer_with(drawn(10 * rank))))
    (rows, name) = made.drawn[0, 0][0]
    assert rows.tolist() == [0, 1, 10, 20]
    assert name == "name"


NOT_TO_BE_HAD = {
    "a rank keeps none": lambda rank: answer_with(Batches(iterated=True, partial=True)),
    "a rank draws none": lambda rank: answer_with(Batches()),
    "they do not fit together": lambda rank: answer_with(Batches({(0, 0): [torch.ones(2), torch.ones(2)]})),
    "one can't be pickled": lambda rank: answer_with(Batches({(0, 0): [lambda: rank]})),
    "they are too many": lambda rank: b"0" * (MOST_BYTES + 1),
}


@pytest.mark.parametrize("answer", NOT_TO_BE_HAD.values(), ids=NOT_TO_BE_HAD)
def test_what_makes_no_global_batches_is_left(answer):
    assert together(drawn(0), 2, answer) == b""


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


def test_a_file_that_holds_no_batches_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(pickle.dumps([1]))
    (tmp_path / "broken").write_bytes(b"no pickle")
    for name in ("other", "broken", "missing"):
        with pytest.raises(SpmdValueError, match=name) as caught:
            read_batches(str(tmp_path / name))
        assert caught.value.code == "SW905"
