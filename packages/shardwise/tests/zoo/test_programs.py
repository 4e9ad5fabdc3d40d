"""Every program of the zoo: it computes what one device computes, both checks accept it, and its formulas are true."""

from __future__ import annotations

import json
import os
from collections import Counter
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.planner.cost import cost_of
from shardwise.zoo.catalogue import PARTS, entry, names
from shardwise.zoo.evidence import Evidence, run
from shardwise.zoo.program import STEPS, ZooProgram

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("name", names())
def test_it_computes_what_one_device_computes_and_holds_what_its_formula_says(name: str) -> None:
    found = entry(name)
    evidence = run(found.program, found.program.mesh)
    assert evidence.disagreements == ()
    times = 1 if found.program.optimizer else STEPS + 1  # weights at the end, and gradients of every step
    assert evidence.compared == prod(found.program.mesh.values()) * (STEPS + times * len(found.program.weights))
    assert set(evidence.held) == {found.memory(found.program.mesh) * 8}
    assert set(evidence.state) == {found.state(found.program.mesh) * 8}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", names())
def test_it_is_accepted_and_its_ranks_receive_what_its_formulas_say(name: str, tmp_path: Path) -> None:
    found = entry(name)
    sizes = found.sizes(found.program.mesh)
    options = [word for axis, size in found.program.mesh.items() for word in (f"--{axis}", str(size))]
    mesh = ",".join(f"{axis}={size}" for axis, size in found.program.mesh.items())
    schedule = tmp_path / "schedule.jsonl"
    for types in ("--local", "--global"):
        words = ["check", os.fspath(found.path), "--strict", types, "--mesh", mesh, "--schedule", os.fspath(schedule)]
        done = CliRunner().invoke(main, [*words, "--", *options])
        assert done.exit_code == 0, done.output
    received: Counter[str] = Counter()
    for line in schedule.read_text().splitlines():
        call = json.loads(line)
        if call["kind"] == "collective" and call["shape"]:  # not the loss, which is summed for printing
            elements, n = prod(call["shape"]), sizes[call["group"]]
            received[call["group"]] += elements if call["op"] == "recv" else cost_of(call["op"], elements, n).elements
    assert {axis: count / STEPS for axis, count in received.items()} == pytest.approx(found.traffic(found.program.mesh))


def test_what_zero_saves_is_state() -> None:
    sizes = {"dp": 4}
    whole, *shared = (entry(name) for name in ("data_parallel", "zero1", "zero2"))
    assert whole.state(sizes) == whole.memory(sizes)
    assert [(one.memory(sizes), one.state(sizes)) for one in shared] == 2 * [
        (whole.memory(sizes), whole.state(sizes) / 4)
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
    assert {"the gradient of up", "the weight up"} <= {wrong.what for wrong in evidence.disagreements}
