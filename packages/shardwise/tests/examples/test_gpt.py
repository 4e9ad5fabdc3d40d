"""Does examples/gpt train, and compute on four real processes what it computes on one?"""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from programs import PROGRAMS
from proof import Job, compare, run_on
from verdict import MODES, check

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python"), pytest.mark.xdist_group("gpt")]

TRAIN = PROGRAMS["gpt"].folder / "train.py"
DOUBLE = ("--dtype", "float64", "--steps", "3")
SINGLE = ("--dtype", "float32", "--steps", "1")
SEQUENCE = ("--sequence-parallel",)
CASES = {
    "double": (DOUBLE, 1e-11),
    "double, sequence parallel": (DOUBLE + SEQUENCE, 1e-11),
    "single": (SINGLE, 1e-4),
    "single, sequence parallel": (SINGLE + SEQUENCE, 1e-4),
}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def outcomes():
    """For each case, what four ranks got and what one rank got."""
    jobs = [Job(TRAIN, args) for args, _ in CASES.values()]
    runs = zip(run_on(4, jobs), run_on(1, jobs), strict=True)
    return {name: (four, one[0]) for name, (four, one) in zip(CASES, runs, strict=True)}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("case", CASES)
def test_four_ranks_compute_the_losses_and_every_gradient_of_one_rank(case, outcomes):
    four, one = outcomes[case]
    assert [outcome.crash for outcome in (*four, one)] == [None] * 5
    assert len(one.gradients) == 3 + 2 * 10  # of the embedding, the last norm, the head, and two blocks
    assert compare(four, one).largest < CASES[case][1]


def test_the_comparison_objects_to_one_wrong_number_on_one_rank(outcomes):
    four, one = outcomes["double"]
    name = "blocks.1.attention.key"
    wrong = {**four[3].gradients, name: four[3].gradients[name].clone()}
    wrong[name][0, 0] += 1e-3
    difference = compare([*four[:3], replace(four[3], gradients=wrong)], one)
    assert difference.parameter == name
    assert difference.gradient > 1e-5
    assert difference.replicas > 1e-5


def test_the_comparison_objects_to_a_loss_that_one_rank_has_wrong(outcomes):
    four, one = outcomes["double"]
    difference = compare([*four[:3], replace(four[3], losses=[*one.losses[:2], 1.0])], one)
    assert difference.losses[0] < 1e-11
    assert difference.losses[2] > 0.1


def losses_printed_by(*command: str) -> list[float]:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"^step +\d+  loss (\S+)$", done.stdout, re.MULTILINE)]


@pytest.mark.nightly
def test_torchrun_prints_the_falling_losses_of_a_single_process():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    four = losses_printed_by(*torchrun, str(TRAIN), "--dp", "2", "--tp", "2", "--sequence-parallel")
    one = losses_printed_by(sys.executable, str(TRAIN))
    assert len(one) == 20
    assert four == pytest.approx(one, abs=2e-4)
    assert one[-1] < one[0] - 1.5


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("mesh", [{"dp": 1, "tp": 1}, {"dp": 4, "tp": 1}], ids=["dp=1,tp=1", "dp=4,tp=1"])
def test_the_checker_finds_nothing_with_any_types_when_an_axis_has_one_rank(mesh):
    asked = [(Job(TRAIN, options), mode) for options in ((), SEQUENCE) for mode in MODES]
    assert [verdict.exit_code for verdict in check(asked, mesh)] == [0] * len(asked)


def test_the_largest_preset_builds_and_steps_on_meta_tensors():
    sizes = ["--preset", "llama-405b", "--layers", "1", "--steps", "1"]
    assert len(losses_printed_by(sys.executable, str(TRAIN), "--device", "meta", *sizes)) == 1
