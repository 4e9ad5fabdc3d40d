"""Does the checker say what a person would say about small but complete distributed programs?

A program is a script in ``programs/right`` or ``programs/wrong``. A trailing comment ``# SW101`` (or several codes)
marks the line on which exactly these findings are expected; everything else must be clean. Comments at the top:

    # options: world_size=4 permissive     how it is run; the world has 8 ranks otherwise, and the check is strict
    # options: once    why                 it is run as the first rank only
    # unseen: reason                       a bug that local types cannot see: clean for now

A right program that ends with a ``result`` is held to its numbers by ``test_programs_by_numbers.py``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shardwise.cli.runs.run import CheckOptions, check_program
from shardwise.diagnostics.result import RunResult
from shardwise.host.program import Program

torch.set_num_threads(1)

FOLDER = Path(__file__).parent / "programs"
RIGHT = sorted((FOLDER / "right").glob("*.py"))
WRONG = sorted((FOLDER / "wrong").glob("*.py"))

_EXPECTED = re.compile(r"#((?: SW\d{3})+)\s*$")
_OPTIONS = re.compile(r"^# options: (.*)$", re.MULTILINE)
_ONCE = re.compile(r"^# options:.*\bonce\b", re.MULTILINE)
_UNSEEN = re.compile(r"^# unseen: \S+", re.MULTILINE)

Findings = dict[int, set[str]]


def expected_findings(path: Path) -> Findings:
    """Codes by line, as the comments of the program say."""
    lines = enumerate(path.read_text().splitlines(), 1)
    return {number: set(match[1].split()) for number, line in lines if (match := _EXPECTED.search(line))}


def options_of(path: Path) -> CheckOptions:
    """How the program is to be run, as its comments say."""
    match = _OPTIONS.search(path.read_text())
    words = match[1].split() if match else []
    sizes = [int(word.removeprefix("world_size=")) for word in words if word.startswith("world_size=")]
    return CheckOptions(world_size=sizes[0] if sizes else 8, strict="permissive" not in words, plain_progress=False)


def run(path: Path, *, last: bool = False) -> RunResult:
    """The result of checking the program as ``shardwise check`` does, as the first rank or the last one."""
    options = options_of(path)
    return check_program(Program(path=str(path)), replace(options, rank=options.world_size - 1 if last else 0))


def told(path: Path, result: RunResult) -> str:
    """What the checker said, and where it differs from the comments."""
    expected, found = expected_findings(path), defaultdict(set)
    for finding in result.findings:
        found[_line(path, finding)].add(finding.code)
    text = [f"{path.name}: {result.verdict}, {result.checked_ops} operations checked"]
    for line in sorted({*expected, *found}):
        missing, extra = expected.get(line, set()) - found[line], found[line] - expected.get(line, set())
        text += [f"  line {line}: {code} was expected" for code in sorted(missing)]
        text += [f"  line {line}: {code} was not expected" for code in sorted(extra)]
    if result.ending is not None:
        text.append(f"  {result.ending.headline}")
    return "\n".join([*text, "", *(str(finding) for finding in result.findings)])


def _line(path: Path, finding) -> int:
    """The line of a finding in the program; 0 if it is anywhere else."""
    location = finding.location
    return location.line if location is not None and Path(location.file).resolve() == path.resolve() else 0


def assert_as_commented(path: Path, *, last: bool = False) -> None:
    result = run(path, last=last)
    found = defaultdict(set)
    for finding in result.findings:
        found[_line(path, finding)].add(finding.code)
    assert result.ending is None, told(path, result)
    assert dict(found) == expected_findings(path), told(path, result)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_is_clean(path):
    assert not expected_findings(path), "a program with expected findings belongs into programs/wrong"
    assert_as_commented(path)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("path", [path for path in RIGHT if not _ONCE.search(path.read_text())], ids=lambda p: p.stem)
def test_a_right_program_is_clean_on_the_last_rank(path):
    assert_as_commented(path, last=True)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(2)
@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_program_gets_the_findings_of_its_comments(path):
    unseen = _UNSEEN.search(path.read_text()) is not None
    assert unseen != bool(expected_findings(path)), "a wrong program has an expected finding, or says why it has none"
    assert_as_commented(path)


def test_a_finding_that_no_comment_expects_fails(tmp_path):
    program = next(path for path in WRONG if expected_findings(path))
    twin = tmp_path / program.name
    twin.write_text(re.sub(r"  # SW\d{3}.*", "", program.read_text()))
    with pytest.raises(AssertionError, match="was not expected"):
        assert_as_commented(twin)


def test_an_expected_finding_that_does_not_come_fails(tmp_path):
    program = tmp_path / RIGHT[0].name
    program.write_text(RIGHT[0].read_text() + "\nprint()  # SW101\n")
    with pytest.raises(AssertionError, match="SW101 was expected"):
        assert_as_commented(program)
