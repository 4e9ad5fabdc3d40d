"""Is docs/mutants.md the report on the programs as they are, and are its survivors explained?"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from shardwise_devtools.mutate.judge import Fate
from shardwise_devtools.mutate.mutants import mutants_in

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "examples" / "parallelisms"))

import mutants  # noqa: E402  a program beside the examples, not a package

PAGE = (ROOT / "docs" / "mutants.md").read_text()
STALE = "run: python examples/parallelisms/mutants.py --write"


def counts() -> dict[str, list[int]]:
    """By program, how many mutants met each fate, as the page has it."""
    rows = re.findall(r"^\| ([^|*]+?) \| (\d+(?: \| \d+)*) \|$", PAGE, re.MULTILINE)
    return {name: [int(count) for count in row.split(" | ")] for name, row in rows}


def test_the_page_counts_every_mutant_of_every_program() -> None:
    expected = {}
    for name, (script, mesh, _) in mutants.PROGRAMS.items():
        expected[name] = len(mutants_in((mutants.HERE / script).resolve(), tuple(mesh)))
    assert {name: sum(row) for name, row in counts().items()} == expected, STALE


def test_no_alarm_is_false_and_few_mutants_survive() -> None:
    total = sum(map(sum, counts().values()))
    survived = len(re.findall(r"^\| .* becomes ", PAGE.split("## False alarms")[0], re.MULTILINE))
    assert total >= 300
    assert survived / total <= 0.02
    assert PAGE.split("## False alarms")[1].strip() == "None."


def rows(section: str) -> set[tuple[str, str]]:
    """Program and place of every mutant in a section of the page."""
    return set(re.findall(r"^\| ([^|]+), `([^`]+)` \| ", PAGE.split(f"## {section}")[1].split("##")[0], re.MULTILINE))


@pytest.mark.processes
@pytest.mark.xdist_group("mutants")
def test_survivors_of_a_fresh_run_are_those_of_the_page() -> None:
    """Of the mistakes that survive anywhere, in the smallest program; `make nightly` measures the whole page."""
    name = "tensor_parallel.py"
    judged = mutants.judged_of(name, 1, (), ("denominator",))
    assert len(judged) > 0
    survived = {(name, str(one.mutant.place)) for one in judged if one.fate is Fate.SURVIVED}
    assert survived == {row for row in rows("Survivors") if row[0] == name}
    assert not any(one.fate is Fate.FALSE_ALARM for one in judged)


def test_every_survivor_is_explained() -> None:
    assert "not explained" not in PAGE
