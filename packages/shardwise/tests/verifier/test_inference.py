"""Types of inputs whose samples are dealt out to other micro-batches than on one rank, and of flattened parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.annotating.annotations import plan_annotations
from shardwise.verifier.annotating.inference import InferredType, inferred_types
from shardwise.verifier.records.annotation_sites import AnnotationSites
from shardwise.verifier.records.record import RankRun

HERE = SourceLocation("train.py", 7, 7, 4, 9)
SAMPLES = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))


def run(kind: str, values: Sequence[torch.Tensor]) -> RankRun:
    name = "0 of Net" if kind == "input" else "w"
    records = [Record(Key(kind, name, HERE, nth), UNTYPED, "", value) for nth, value in enumerate(values, 1)]
    return RankRun(list(records), {}, {torch.float32}, steps=[len(records)])


def inferred(kind: str, ranks: Sequence[Sequence[torch.Tensor]], alone: Sequence[torch.Tensor]) -> InferredType:
    (one,) = inferred_types([run(kind, values) for values in ranks], run(kind, alone), {"dp": 2})
    return one


@pytest.mark.parametrize("shares", [(SAMPLES[:4], SAMPLES[4:]), (SAMPLES[::2], SAMPLES[1::2])], ids=["halves", "dealt"])
def test_samples_of_a_step_in_other_micro_batches_are_a_shard(shares):
    one = inferred("input", [share.chunk(2) for share in shares], SAMPLES.roll(3, 0).chunk(4))
    assert one.axes == {"dp": "S(0)"}
    assert "all its micro-batches" in one.known_by["dp"]


@pytest.mark.parametrize(("first", "said"), [("whole batches", "V"), ("one by one", "S(0)")])
def test_what_is_called_for_each_sample_of_a_batch_is_no_shard(first, said):
    """A detector's loss is called for each image of a batch that the model has got as a whole."""

    def step(samples: torch.Tensor) -> RankRun:
        batches = [samples] if first == "whole batches" else samples.split(1)
        images = [Record(Key("input", "0 of Net", HERE, nth), UNTYPED, "", x) for nth, x in enumerate(batches, 1)]
        goals = run("input", list(samples.roll(1, 1))).entries
        renamed = [Record(replace(one.key, name="1 of loss"), UNTYPED, "", one.value) for one in goals]
        return RankRun([*images, *renamed], {}, {torch.float32}, steps=[len(images) + len(renamed)])

    image, goal = inferred_types([step(SAMPLES[:4]), step(SAMPLES[4:])], step(SAMPLES), {"dp": 2})
    assert image.axes == {"dp": "S(0)"}
    assert goal.axes == {"dp": said}
    assert bool(goal.kept_out) == (said == "V")


def test_other_samples_are_not_explained():
    wrong = [SAMPLES[:4].chunk(2), SAMPLES[:4].flip(0).chunk(2)]
    assert inferred("input", wrong, SAMPLES.roll(3, 0).chunk(4)).axes is None


def test_a_part_of_a_flattened_parameter_varies():
    flat = SAMPLES.flatten()
    one = inferred("parameter", [[flat[:10].clone()], [flat[10:].clone()]], [SAMPLES])
    assert one.axes == {"dp": "V"}


@pytest.mark.parametrize("entering", [b"own", b"all"])
def test_a_parameter_that_ranks_train_apart_between_averages_varies_and_is_not_annotated(entering):
    """Local SGD: equal before the first step and at the end; what enters the second step is each rank's own."""

    def training(rank: int) -> RankRun:
        second = entering + bytes([rank]) if entering == b"own" else entering
        records = run("parameter", [SAMPLES]).entries
        for kind, nth, digest in (("gradient", 1, b"same"), ("gradient", 2, second), ("trained", 1, b"end")):
            record = Record(Key(kind, "w", HERE, nth), UNTYPED, "", SAMPLES)
            record.digest = digest
            records.append(record)
        return RankRun(records, {}, {torch.float32}, steps=[1, 2])

    (one,) = inferred_types([training(0), training(1)], training(0), {"dp": 2})
    if entering == b"all":
        assert (one.axes, one.kept_out) == ({"dp": "R or I"}, "")
        return
    assert one.axes == {"dp": "V"}
    plan = plan_annotations([one], [AnnotationSites(), AnnotationSites()])
    assert not plan.annotations
    assert "between averages" in dict(plan.left)["w"]


@pytest.mark.parametrize("owners", [(0,), (0, 1)])
def test_a_parameter_that_only_its_owner_steps_is_not_annotated(owners):
    """ZeRO 2: between the owner's step and its broadcast the ranks do not hold the same."""

    def training(rank: int) -> RankRun:
        records = run("parameter", [SAMPLES]).entries
        if rank in owners:
            records.append(Record(Key("gradient", "w", HERE, 1), UNTYPED, "", SAMPLES))
        return RankRun(records, {}, {torch.float32}, steps=[1])

    (one,) = inferred_types([training(0), training(1)], training(0), {"dp": 2})
    assert one.axes == {"dp": "R or I"}
    assert bool(one.kept_out) == (owners == (0,))


LEFT, RIGHT = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("ranks", "place"),
    [
        ([[LEFT, RIGHT], [LEFT, RIGHT]], "I"),
        ([[LEFT, RIGHT], [RIGHT, LEFT]], "R"),
        ([[torch.ones(4), LEFT], [torch.ones(4), RIGHT]], "R or I"),
        ([[torch.ones(4), -torch.ones(4)]] * 2, "R or I"),
        ([[torch.zeros(4), torch.zeros(4)]] * 2, "R or I"),
    ],
    ids=["equal", "terms", "equal once", "all as large", "zeros"],
)
def test_gradients_that_are_equal_by_accident_make_no_parameter_invariant(ranks, place):
    """A clipped loss gives the last bias the gradient 1 on every rank, whatever its samples are."""

    def training(gradients: Sequence[torch.Tensor]) -> RankRun:
        records = run("parameter", [torch.arange(4.0)]).entries
        for nth, value in enumerate(gradients, 1):
            records.append(Record(Key("computed", "w", HERE, nth), UNTYPED, "", value))
        return RankRun(records, {}, {torch.float32}, steps=[])

    alone = [torch.stack(each).mean(0) for each in zip(*ranks, strict=True)]
    (one,) = inferred_types([*map(training, ranks)], training(alone), {"dp": 2})
    assert one.axes == {"dp": place}


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_buffer_of_zeros_gets_no_annotation(value):
    one = inferred("buffer", [[torch.full((4,), value)]] * 2, [torch.full((4,), value)])
    assert (one.axes, bool(one.kept_out)) == ({"dp": "R"}, value == 0.0)
