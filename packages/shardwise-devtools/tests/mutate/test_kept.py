"""Are verdicts kept as they come, and only as long as what they follow from is as it was?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise_devtools.main import main
from shardwise_devtools.mutate import kept, measure
from shardwise_devtools.mutate.corpus import corpus
from shardwise_devtools.mutate.judge import Measured, Numbers, Said, Verdict
from shardwise_devtools.mutate.kept import KeptVerdicts, state_of
from shardwise_devtools.mutate.operators import Mutant

# Programs are read for their mutants once in a process.
pytestmark = pytest.mark.xdist_group("mutants")

ZERO1 = next(one for one in corpus() if one.name == "zero1").between_ranks
WRONG: Verdict = Measured(Numbers.DIFFERENT, "twice"), (Said("local", ("SW201 at zero1.py:4",)),)
UNCHANGED: Verdict = Measured(Numbers.EQUAL, unchanged=True), (Said("local"), Said("global"))


def test_a_verdict_is_on_disk_as_soon_as_it_is_known(tmp_path: Path) -> None:
    one, other = mutants(2)
    first = KeptVerdicts.of(ZERO1, tmp_path)
    assert one not in first
    first.keep(one, WRONG)
    second = KeptVerdicts.of(ZERO1, tmp_path)
    assert second[one] == WRONG
    assert other not in second
    second.keep(other, UNCHANGED)
    assert KeptVerdicts.of(ZERO1, tmp_path)[other] == UNCHANGED


def test_what_was_cut_off_in_the_middle_of_a_line_is_judged_again(tmp_path: Path) -> None:
    one, other, third = mutants(3)
    found = KeptVerdicts.of(ZERO1, tmp_path)
    found.keep(one, WRONG)
    found.keep(other, WRONG)
    found.path.write_text(found.path.read_text()[:-9])
    again = KeptVerdicts.of(ZERO1, tmp_path)
    assert one in again
    assert other not in again
    again.keep(third, UNCHANGED)
    assert KeptVerdicts.of(ZERO1, tmp_path)[third] == UNCHANGED


def test_verdicts_of_another_state_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = mutants(1)
    KeptVerdicts.of(ZERO1, tmp_path).keep(one, WRONG)
    assert one in KeptVerdicts.of(ZERO1, tmp_path)
    (tmp_path / "shardwise").mkdir()
    monkeypatch.setattr(kept, "HOMES", (*kept.HOMES, tmp_path / "shardwise"))
    (tmp_path / "shardwise" / "rule.py").write_text("x = 1\n")
    assert one not in KeptVerdicts.of(ZERO1, tmp_path)


def test_the_state_is_of_the_program_and_how_it_is_run() -> None:
    states = {
        state_of(one)
        for one in (
            ZERO1,
            dataclasses.replace(ZERO1, mesh={**ZERO1.mesh, "dp": 8}),
            dataclasses.replace(ZERO1, more="--steps 3"),
            dataclasses.replace(ZERO1, path=Path(__file__)),
        )
    }
    assert len(states) == 4
    assert state_of(dataclasses.replace(ZERO1)) in states


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is cut off before the third mutant; then it is asked for the rest alone, and in the end for none."""
    name = "tensor_parallel_between_ranks"
    subject = next(one for one in corpus() if one.name == name)
    asked: list[int] = []

    def verdicts(bench: object, todo: list[Mutant], jobs: int) -> Iterator[Verdict]:
        asked.append(len(todo))
        for at, _ in enumerate(todo):
            if len(asked) == 1 and at == 2:
                raise KeyboardInterrupt
            yield WRONG

    monkeypatch.setattr(measure, "verdicts", verdicts)
    monkeypatch.setattr(measure.Bench, "of", lambda program, mesh: None)
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    count = len(subject.mutants)
    assert CliRunner().invoke(main, ["mutants", name]).exit_code != 0
    for _ in range(2):
        done = CliRunner().invoke(main, ["mutants", name])
        assert f"{name}: {count} mutants: 0 survived, 0 false alarms, 0 found by verify, {count} killed" in done.output
    assert asked == [count, count - 2]


def mutants(count: int) -> list[Mutant]:
    found = next(one for one in corpus() if one.name == "zero1").mutants
    return found[:count]
