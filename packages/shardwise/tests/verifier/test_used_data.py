"""What operations are given that has no gradient is recorded, and may be replaced; what they write into is not."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from shardwise.interop.running.recording import Key
from shardwise.verifier.runs.made_tensors import note_made
from shardwise.verifier.runs.used_data import UsedData

X = torch.arange(8.0)


def names(used):
    return [record.key.name for record in used.records]


def test_operands_lists_and_parts_are_recorded_and_nothing_else():
    used = UsedData(0, {})
    weight, leaf = nn.Parameter(torch.ones(8)), torch.ones(8, requires_grad=True)
    used.operands(torch.mul, (X, 2.0))
    used.operands(torch.mul, (weight, leaf))
    used.operands(torch.cat, ([X, X],))
    used.operands(torch.Tensor.mul_, (X, X))
    used.operands(torch.Tensor.shape.__get__, (X,))
    used.result(torch.Tensor.__getitem__, X[:4])
    used.result(torch.exp, X)
    assert names(used) == ["mul 0", "cat 0", "cat 0", "mul_ 1", "getitem result"]


def test_what_is_made_of_parameters_is_no_data():
    used, shard = UsedData(0, {}), torch.ones(8)
    note_made([shard])
    used.operands(torch.mul, (shard, 2.0))
    used.result(torch.narrow, shard)
    assert not names(used)


def test_a_rank_gets_its_own_piece_under_the_number_of_the_record():
    pieces: dict[Key, list[torch.Tensor]] = {}
    used = UsedData(1, pieces)
    given = []
    for _ in range(2):
        given.append(used.operands(torch.mul, (X, 2.0))[0])
        pieces[replace(used.records[0].key, nth=2)] = [X, X + 1]
    assert given[0] is X
    assert torch.equal(given[1], X + 1)
