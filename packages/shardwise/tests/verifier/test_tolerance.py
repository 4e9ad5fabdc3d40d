"""How far values may be apart: single elements that are rounding say nothing, and only optimizers magnify it."""

from __future__ import annotations

import torch

from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.distance.tolerance import TRAINED, Tolerance
from shardwise.verifier.records.record import RankRun

AFTER = Key("trained", "bias", None)


def run_with(*gradients: list[float]) -> RankRun:
    keys = [Key("gradient", "bias", None, nth) for nth, _ in enumerate(gradients, 1)]
    return RankRun([Record(key, UNTYPED, "", torch.tensor(g)) for key, g in zip(keys, gradients, strict=True)])


def test_elements_whose_gradients_are_rounding_in_every_step_are_as_expected():
    tolerance = Tolerance(run_with([1.0, 1e-9, 0.0, 1e-9], [1.0, -1e-9, 0.0, 0.5]), [torch.float32], None)
    trained, expected = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4)
    assert tolerance.settled(AFTER, "bias", trained, expected).tolist() == [1.0, 0.0, 3.0, 4.0]
    assert tolerance.settled(AFTER, "weight", trained, expected).tolist() == trained.tolist()
    assert not tolerance.is_noise("bias")


def test_rounding_is_magnified_by_optimizers_alone():
    x = [torch.ones(1)]
    stepped = Tolerance(run_with([1.0]), [torch.float32], None).apart(AFTER, x, 0.0)
    assert stepped == TRAINED * Tolerance(RankRun(), [torch.float32], None).apart(AFTER, x, 0.0)


def test_what_is_left_of_a_residual_is_rounding_on_the_scale_of_those_before():
    keys = [Key("read", "", None, nth) for nth in (1, 2)]
    read = [Record(key, UNTYPED, "", torch.tensor(x).double()) for key, x in zip(keys, (100.0, 2e-15), strict=True)]
    tolerance = Tolerance(RankRun(read), [torch.float64], None)
    assert 1e-14 < tolerance.apart(keys[1], [torch.tensor(2e-15).double()], 0.0) < 1e-12
    assert tolerance.apart(keys[0], [torch.tensor(100.0).double()], 0.0) < 1e-6
    assert Tolerance(RankRun(read), [torch.float64], 1e-9).apart(keys[1], [torch.tensor(2e-15).double()], 0.0) < 1e-20
