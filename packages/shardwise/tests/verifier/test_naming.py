"""What parameters are called where a program has several models of equal names."""

from __future__ import annotations

import copy

import torch
from torch import nn

from shardwise.verifier.records.naming import Names


def test_a_copy_of_an_outline_has_its_names():
    """As torch's pipelines are built: the whole model without values, and of it a copy for each stage."""
    names = Names()
    with names.watching(), torch.device("meta"):
        whole = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    stage = copy.deepcopy(whole)
    del stage[0]
    stage.to_empty(device="cpu")
    names.meet(stage)
    named = names.parameters()
    assert named["0.weight"] is stage[0].weight
    assert named["1.weight"] is whole[1].weight


def test_a_second_model_with_values_is_numbered():
    names = Names()
    with names.watching():
        first, second = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    assert names.parameters()["0.weight"] is first[0].weight
    assert names.parameters()["0.weight (2)"] is second[0].weight
