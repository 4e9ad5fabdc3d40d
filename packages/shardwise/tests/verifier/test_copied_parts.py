"""A flat copy that an optimizer steps is of the parameters whose values it has, where every run tells so."""

from __future__ import annotations

import pytest
import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.comparison.compare import compare
from shardwise.verifier.layouts.copied_parts import parts_of_copy, with_copies_named
from shardwise.verifier.records.record import RankRun

WHOLES = {"weight": torch.arange(1.0, 9.0).view(2, 4), "bias": torch.tensor([0.5, -1.0, 7.0])}
GRADIENTS = {"weight": WHOLES["weight"].sin(), "bias": WHOLES["bias"].cos()}


def cut(values, number, place):
    """Each value flattened, padded to pieces of one length, and of each the piece of this place."""
    pieces = []
    for value in values.values():
        length = -(-value.numel() // number)
        padded = torch.zeros(length * number)
        padded[: value.numel()] = value.flatten()
        pieces.append(padded[place * length : (place + 1) * length])
    return torch.cat(pieces)


def run(copy, gradient):
    """A rank that has gathered the parameters, and steps a copy of its pieces of them."""
    records = [("parameter", name, value) for name, value in WHOLES.items()]
    records += [("parameter", "parameter 0", copy), ("gradient", "parameter 0", gradient)]
    entries = [Record(Key(kind, name, None), UNTYPED, "", value) for kind, name, value in records]
    return RankRun(entries=entries, steps=[3])


def both(gradients, number=2):
    ranks = [run(cut(WHOLES, number, place), cut(gradients, number, place)) for place in range(number)]
    return compare(ranks, run(cut(WHOLES, 1, 0), cut(GRADIENTS, 1, 0)), mesh={"dp": number})


def test_a_copy_has_a_piece_of_each_parameter():
    parts = parts_of_copy(cut(WHOLES, 2, 1), WHOLES, 2)
    assert [(part.name, part.start, part.stop, part.first) for part in parts] == [
        ("weight", 4, 8, 0),
        ("bias", 2, 3, 4),
    ]
    assert [part.stop for part in parts_of_copy(cut(WHOLES, 1, 0), WHOLES, 2)] == [8, 3]


def test_it_may_leave_some_parameters_to_another_copy():
    (part,) = parts_of_copy(cut({"bias": WHOLES["bias"]}, 2, 0), WHOLES, 2)
    assert (part.name, part.start, part.stop) == ("bias", 0, 2)


@pytest.mark.parametrize(
    "copy", [torch.cat([one.flatten() for one in WHOLES.values()])[:5], cut(WHOLES, 2, 1) + 1], ids=["cut", "else"]
)
def test_what_is_cut_otherwise_is_no_copy(copy):
    assert parts_of_copy(copy, WHOLES, 2) == []


@pytest.mark.parametrize("number", [2, 4])
def test_gradients_of_copies_are_compared_as_those_of_parameters(number):
    numbers = both(GRADIENTS, number)
    assert (numbers.disagreements, numbers.not_compared, numbers.gradients) == ((), (), 2)


def test_a_wrong_one_is_told_by_the_name_of_its_parameter():
    wrong = both({**GRADIENTS, "bias": GRADIENTS["bias"] * 2})
    assert [(one.key.kind, one.key.name) for one in wrong.disagreements] == [("gradient", "bias")]


def test_zeros_are_no_copies_of_memory_that_is_filled_where_it_is_used():
    """A shard of a bias is as zero as parameters are before they are gathered."""
    empty = {name: torch.zeros_like(value) for name, value in WHOLES.items()}

    def rank(copy):
        records = [("parameter", name, value) for name, value in {**empty, "parameter 0": copy}.items()]
        records.append(("gradient", "parameter 0", copy + 1))
        return RankRun(
            entries=[Record(Key(kind, name, None), UNTYPED, "", value) for kind, name, value in records], steps=[3]
        )

    runs, alone = with_copies_named([rank(torch.zeros(2)), rank(torch.zeros(2))], rank(torch.zeros(3)))
    assert [[entry.key.name for entry in run.entries if entry.key.kind == "gradient"] for run in (*runs, alone)] == [
        ["parameter 0"]
    ] * 3


def test_a_copy_that_the_ranks_cut_otherwise_keeps_its_name():
    """As one flat tensor, cut over the ranks."""
    flat = [torch.cat([one.flatten() for one in values.values()]) for values in (WHOLES, GRADIENTS)]
    halves = [torch.cat([one, torch.zeros(1)]).chunk(2) for one in flat]
    ranks = [run(*(half[place] for half in halves)) for place in range(2)]
    alone = run(*(torch.cat([one, torch.zeros(1)]) for one in flat))
    numbers = compare(ranks, alone, mesh={"dp": 2})
    assert (numbers.disagreements, numbers.not_compared, numbers.gradients) == ((), (), 1)


def masters(count, *, wrong=""):
    """A rank that steps a copy of each parameter in its own shape: biases start with equal values."""
    values = {"up": torch.arange(6.0).view(2, 3), "one": torch.zeros(3), "other": torch.zeros(3)}
    records = [("parameter", name, value) for name, value in values.items()]
    records += [("parameter", f"parameter {at}", value.clone()) for at, value in enumerate(values.values())]
    for at, (name, value) in enumerate(values.items()):
        records.append(("gradient", f"parameter {at}", value + at + (count if name == wrong else 0.0)))
    entries = [Record(Key(kind, name, None), UNTYPED, "", value) for kind, name, value in records]
    return RankRun(entries=entries, steps=[len(entries)])


@pytest.mark.parametrize("wrong", ["up", "one", "other"])
def test_every_master_is_of_a_parameter_of_its_own(wrong):
    assert not compare([masters(1), masters(2)], masters(1), mesh={"dp": 2}).disagreements
    (found,) = compare([masters(1, wrong=wrong), masters(1, wrong=wrong)], masters(1), mesh={"dp": 2}).disagreements
    assert str(found.key) == f"gradient of {wrong}"
