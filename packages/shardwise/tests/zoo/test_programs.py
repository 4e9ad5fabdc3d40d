"""Every program of the zoo: it computes what one device computes, both checks accept it, and its formulas are true."""

from __future__ import annotations

import os
from dataclasses import replace
from math import prod

import pytest
from click.testing import CliRunner
from torch import Tensor

import shardwise as spmd
from shardwise import R, S
from shardwise.cli.main import main
from shardwise.zoo.catalogue import PARTS, entry, names
from shardwise.zoo.evidence import Evidence, run
from shardwise.zoo.program import STEPS, ZooProgram
from shardwise.zoo.programs.zero1 import ShardedSGD

pytestmark = pytest.mark.processes


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", names())
def test_it_computes_what_one_device_computes_and_holds_and_receives_what_its_formulas_say(name: str) -> None:
    found = entry(name)
    evidence = run(found.program, found.program.mesh)
    assert evidence.disagreements == ()
    times = 1 + STEPS  # weights at the end, and momenta of every step
    times += 0 if found.program.optimizer else STEPS  # of gradients
    assert evidence.compared == prod(found.program.mesh.values()) * (STEPS + times * len(found.program.weights))
    assert set(evidence.held) == {found.memory(found.program.mesh) * 8}
    assert evidence.kept[0].gradients == found.gradients(found.program.mesh) * 8
    assert evidence.kept[0].activations == found.activations(found.program.mesh) * 8
    assert max(kept.activations for kept in evidence.kept) == evidence.kept[0].activations
    assert set(evidence.state) == {found.state(found.program.mesh) * 8}
    by_formula = {axis: elements * 8 for axis, elements in found.traffic(found.program.mesh).items()}
    assert all(received == pytest.approx(by_formula) for received in evidence.received)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", names())
def test_it_is_accepted(name: str) -> None:
    found = entry(name)
    options = [word for axis, size in found.program.mesh.items() for word in (f"--{axis}", str(size))]
    mesh = ",".join(f"{axis}={size}" for axis, size in found.program.mesh.items())
    for types in ("--local", "--global"):
        words = ["check", os.fspath(found.path), "--strict", types, "--mesh", mesh, "--", *options]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        assert "of unknown origin" not in done.output


def test_what_zero_saves_is_state() -> None:
    sizes = {"dp": 4}
    whole, *shared = (entry(name) for name in ("data_parallel", "zero1", "zero2"))
    assert whole.state(sizes) == whole.memory(sizes)
    assert [(one.memory(sizes), one.state(sizes)) for one in shared] == 2 * [
        (whole.memory(sizes), whole.state(sizes) / 4)
    ]
    assert [one.gradients(sizes) * share for one, share in zip(shared, (1, 4), strict=True)] == 2 * [
        whole.gradients(sizes)
    ]


def test_a_page_has_all_its_parts() -> None:
    for name in names():
        found = entry(name)
        assert tuple(found.parts) == PARTS
        assert all(found.parts.values()), name
        axes = set(found.sizes(found.program.mesh))
        assert set(found.traffic(found.program.mesh)) == axes, "an axis without traffic is none"


def test_a_wrong_program_is_seen_to_differ() -> None:
    """The comparison can fail: a weight whose gradient is not summed, and one that lies otherwise than it says."""
    right = entry("data_parallel").program
    unsummed = ZooProgram(**{**vars(right), "weights": {**right.weights, "up": "f64[16, 12] {dp: V}"}})
    evidence: Evidence = run(unsummed, {"dp": 2})
    assert {"the gradient of up", "the momentum of up", "the weight up"} <= {
        wrong.what for wrong in evidence.disagreements
    }


def test_a_gradient_that_the_optimizer_leaves_unsummed_is_seen_to_differ() -> None:
    """Where the optimizer sums gradients itself, its momenta show them."""

    class Unsummed(ShardedSGD):
        def summed(self, weight: Tensor) -> Tensor:
            assert weight.grad is not None
            return spmd.convert(weight.grad, "dp", src=R, dst=S(0))

    right = entry("zero1").program
    evidence = run(replace(right, optimizer=Unsummed), {"dp": 2})
    assert "the momentum of up" in {wrong.what for wrong in evidence.disagreements}
