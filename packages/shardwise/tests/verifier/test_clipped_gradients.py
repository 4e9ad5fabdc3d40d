"""A gradient that is wrong for its own sake is told before those that a clipped norm has scaled."""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.comparison.compare import compare
from shardwise.verifier.records.record import RankRun

RIGHT = {name: torch.arange(1.0, 5.0) + at for at, name in enumerate(("table", "up", "norm", "down"))}


def run(gradients):
    records = [("parameter", name, torch.arange(4.0) - at) for at, name in enumerate(RIGHT)]
    records += [("gradient", name, value) for name, value in gradients.items()]
    return RankRun([Record(Key(kind, name, None), UNTYPED, "", value) for kind, name, value in records], steps=[4])


def told(factor=0.9, **changed):
    """The names of what disagrees where all gradients are clipped by a factor and some are changed."""
    wrong = run({name: changed.get(name, value * factor) for name, value in RIGHT.items()})
    numbers = compare([wrong, wrong], run(RIGHT), mesh={"dp": 2})
    return [one.key.name for one in numbers.disagreements], numbers.notes


def test_what_is_wrong_in_another_way_comes_first():
    names, notes = told(norm=RIGHT["norm"] * torch.tensor([0.9, 0.4, 0.3, 0.2]))
    assert names == ["norm", "table", "up", "down"]
    assert any("3 gradients are off by one factor, 0.9, as by a norm that was clipped" in note for note in notes)


def test_another_factor_is_another_way_too():
    assert told(norm=RIGHT["norm"] * 0.45)[0][0] == "norm"


def test_a_factor_that_is_the_size_of_an_axis_is_a_mistake_and_no_clipping():
    names, notes = told(factor=0.5, norm=RIGHT["norm"] * torch.tensor([0.9, 0.4, 0.3, 0.2]))
    assert names == list(RIGHT)
    assert not any("clipped" in note for note in notes)


@pytest.mark.parametrize("changed", [{}, dict.fromkeys(("table", "up"), torch.ones(4))], ids=["all", "half"])
def test_otherwise_they_stay_in_the_order_of_the_program(changed):
    assert told(**changed)[0] == list(RIGHT)
