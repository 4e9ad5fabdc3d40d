"""What an optimizer has of flat buffers belongs to the parameters whose memory it is."""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.running.recording import HeldElements, Key, Record
from shardwise.mesh.axis import MeshAxis
from shardwise.oracle.observed_layout import Along, ObservedLayout, Way
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.distance.numbers import NotCompared, ValueDisagreement
from shardwise.verifier.layouts.alignment import AlignedParameter
from shardwise.verifier.layouts.held_parts import put_together
from shardwise.verifier.records.flat_parts import FlatParts, held_elements

KEY = Key("gradient", "w", None)
BOTH = AlignedParameter((0, 1), "w", (ObservedLayout((Along(MeshAxis.of(2, 1), Way.EQUAL),)),))


def of_rank(start, stop, *values):
    return Record(KEY, UNTYPED, "", torch.tensor(values), held=HeldElements((2, 2), ((start, stop),)))


def test_a_view_of_a_buffer_has_the_end_of_one_parameter_and_the_beginning_of_the_next():
    buffer = torch.zeros(16)
    named = {"w": buffer[:6].view(2, 3), "b": buffer[6:8], "v": buffer[8:16].view(2, 4)}
    found = FlatParts(named.items()).of(buffer[4:10])
    assert [(part.name, part.start, part.stop, part.first) for part in found] == [
        ("w", 4, 6, 0),
        ("b", 0, 2, 2),
        ("v", 0, 2, 4),
    ]


def test_a_copy_is_named_by_the_memory_of_its_gradient():
    parameter = torch.zeros(2, 3, dtype=torch.bfloat16)
    parameter.main_grad = torch.zeros(2, 3)
    copy = torch.zeros(4)
    copy.grad = parameter.main_grad.view(-1)[2:]
    (part,) = FlatParts([("w", parameter)]).of(copy)
    assert (part.name, part.shape, part.start, part.stop) == ("w", (2, 3), 2, 6)
    assert FlatParts([("w", parameter)]).of(torch.zeros(4)) == []


def test_neighbouring_parts_are_one_and_all_of_a_parameter_has_its_shape():
    w = torch.arange(6.0).view(2, 3)
    flat = FlatParts([("w", w)])
    parts = [(flat.of(one)[0], one) for one in w.view(-1).split([1, 2, 3])]
    value, held = held_elements(parts[1:])
    assert held == HeldElements((2, 3), ((1, 6),))
    assert value.tolist() == [1, 2, 3, 4, 5]
    value, held = held_elements([parts[2], parts[0], parts[1]])
    assert held is None
    assert torch.equal(value, w)


def test_parts_of_all_ranks_are_put_together():
    whole = put_together(KEY, {0: of_rank(0, 3, 1.0, 2.0, 3.0), 1: of_rank(3, 4, 4.0)}, BOTH)
    assert isinstance(whole, dict)
    assert [whole[rank].tolist() for rank in (0, 1)] == [[[1, 2], [3, 4]]] * 2


@pytest.mark.parametrize(
    ("records", "kind", "words"),
    [
        ({0: of_rank(0, 3, 1.0, 2.0, 3.0)}, NotCompared, "no rank has element 3"),
        ({0: of_rank(0, 3, 1.0, 2.0, 3.0), 1: of_rank(2, 4, 5.0, 6.0)}, ValueDisagreement, "rank 1 has other values"),
        ({}, NotCompared, "no rank"),
    ],
    ids=["missing", "two values", "none"],
)
def test_what_does_not_make_a_whole_is_told(records, kind, words):
    told = put_together(KEY, records, BOTH)
    assert isinstance(told, kind)
    assert words in (told.reason if isinstance(told, NotCompared) else told.said)
