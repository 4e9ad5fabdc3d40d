"""What the checker accepts of a random program is so: on every rank, forward and backward, local and global types."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings

from .drawing import programs
from .judging import Unsuited, accepted, disagreement
from .planted import RULES
from .program import OPERATORS, TRANSITIONS

MODES = pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
LENIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.mark.slow_but_one_in(2)
@MODES
def test_what_the_checker_accepts_is_so(local):
    @settings(max_examples=2 * settings.default.max_examples, suppress_health_check=LENIENT)
    @given(programs(local=local))
    def every_program(program):
        try:
            reason = disagreement(program)
        except Unsuited:
            reject()
        assert reason is None, reason

    every_program()


@pytest.mark.slow
@pytest.mark.one_in(2)
@MODES
def test_the_checker_accepts_much_of_what_is_drawn(local):
    taken: Counter[str] = Counter()

    @settings(max_examples=100, derandomize=True, phases=[Phase.generate], suppress_health_check=LENIENT, database=None)
    @given(programs(local=local))
    def every_program(program):
        taken.update(accepted(program))

    every_program()
    assert taken.total() >= 100
    assert len(taken.keys() & OPERATORS.keys()) >= len(OPERATORS) // 2
    assert len(taken.keys() & TRANSITIONS.keys()) >= 3


def found(rule: str, *options: str) -> list[str]:
    """The steps of a program that refutes a planted rule."""
    command = [sys.executable, str(Path(__file__).with_name("planted.py")), rule, *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [line for line in run.stdout.splitlines() if "(v" in line]


@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", RULES)
def test_a_planted_wrong_rule_is_found(rule):
    assert any(f"= {rule.split()[0]}(" in step for step in found(rule))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
def test_the_program_that_refutes_a_rule_gets_short():
    assert len(found("all_reduce sums in backward too", "--shrink")) <= 2
