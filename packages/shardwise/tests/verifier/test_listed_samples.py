"""Samples in lists: the ranks together have those of one rank, though each counts its own from zero."""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.listed_samples import ListedSamples, place_in_lists

BOXES = [torch.rand(count, 4, generator=torch.Generator().manual_seed(count)) for count in (1, 3, 2, 5)]
FIRST = Key("input", "targets.0.boxes of Criterion", None)


def given(*samples, nth=1):
    keys = [Key("input", f"targets.{at}.boxes of Criterion", None, nth) for at in range(len(samples))]
    return {key: Record(key, UNTYPED, "", value) for key, value in zip(keys, samples, strict=True)}


@pytest.mark.parametrize(
    ("ranks", "explained"),
    [
        ([BOXES[:2], BOXES[2:]], True),
        ([BOXES[::2], BOXES[1::2]], True),
        ([BOXES[:1], BOXES[1:]], True),
        ([BOXES[:2], BOXES[:2], BOXES[2:], BOXES[2:]], True),
        ([BOXES[:2], BOXES[:2]], False),
        ([BOXES[:3], BOXES[2:]], False),
        ([BOXES[:2], [BOXES[2], BOXES[3] + 1]], False),
    ],
    ids=["halves", "dealt", "uneven", "tensor parallel groups", "the first ones", "one twice", "others"],
)
def test_lists_hold_the_samples_of_one_rank_each_equally_often(ranks, explained):
    listed = ListedSamples([given(*samples) for samples in ranks], given(*BOXES))
    assert listed.explain(FIRST) is explained


def test_each_call_has_lists_of_its_own():
    second = given(BOXES[0], nth=2)
    listed = ListedSamples([given(*BOXES[:2]) | second, given(*BOXES[2:])], given(*BOXES))
    assert listed.explain(FIRST)
    assert not listed.explain(next(iter(second)))


@pytest.mark.parametrize("name", ["0 of Net", "targets of Net", "batch.ids of Net", "1 of cross_entropy"])
def test_what_is_in_no_list_has_no_place(name):
    assert place_in_lists(Key("input", name, None)) is None
