"""Is every bug of the catalogue a bug, and does the checker say about it what the catalogue expects?"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from catalogue import Bug, apply, expected_place
from proof import Difference, Job, Outcome, compare, hangs, run_on
from verdict import MODES, Verdict, check
from verified import verify

TOLERANCE = 1e-7
"""Relative. In float64 a right program stays below 1e-12; every bug is above 1e-3 in at least one gradient."""


@dataclass(frozen=True)
class Case:
    """A bug, or the unchanged program ``copy_of`` if there is none, under options."""

    bug: Bug | None
    copy_of: str
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        if self.bug:
            return self.bug.id
        which = () if self.copy_of == "gpt" else (self.copy_of,)
        return " ".join(("unchanged program", *which, *self.args))

    @property
    def random(self) -> bool:
        """Random draws differ from those on one rank, so only the ranks can be compared with each other."""
        return "--dropout" in self.args

    @property
    def modes(self) -> tuple[str, ...]:
        """What the checker is asked."""
        if self.bug is None:
            return tuple(MODES)
        return ("local", "global", "ranks") if self.bug.hangs else ("local", "global")


@dataclass(frozen=True)
class Row:
    """What was measured about one program.

    ``verdicts`` by mode; the unchanged program is checked in every one, a bug with local and with global types, and one
    of ranks that diverge on all of them. ``hang``: how its ranks come to a stop; then there is no ``difference``.
    ``wrong_numbers`` is what ``shardwise verify`` names first, where it was asked.
    ``problems`` says in sentences what is not as the catalogue has it.
    """

    case: Case
    verdicts: dict[str, Verdict]
    difference: Difference | None = None
    problems: tuple[str, ...] = ()
    hang: str = ""
    wrong_numbers: str = ""

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def bug(self) -> Bug | None:
        return self.case.bug


def gather(bugs: list[Bug]) -> list[Row]:
    """Runs the unchanged programs under all options that bugs need, then every bug, for real and under the checker."""
    unchanged = dict.fromkeys((bug.program, bug.args) for bug in bugs)
    cases = [Case(None, program, args) for program, args in unchanged]
    cases += [Case(bug, bug.program, bug.args) for bug in bugs]
    with tempfile.TemporaryDirectory() as root:
        jobs = [_job(case, Path(root, str(number))) for number, case in enumerate(cases)]
        ending = [job for job, case in zip(jobs, cases, strict=True) if not (case.bug and case.bug.hangs)]
        ended = dict(zip(ending, zip(run_on(4, ending), run_on(1, ending), strict=True), strict=True))
        rows = []
        for case, job, verdicts in zip(cases, jobs, _verdicts(cases, jobs), strict=True):
            row = Row(case, verdicts)
            row = _measured(row, *ended[job]) if job in ended else replace(row, hang=hangs(job))
            rows.append(_judged(row, job))
        return rows


def _job(case: Case, directory: Path) -> Job:
    return Job(apply(case.bug, directory, case.copy_of), case.args, case.copy_of)


def _verdicts(cases: list[Case], jobs: list[Job]) -> list[dict[str, Verdict]]:
    asked = [(number, mode) for number, case in enumerate(cases) for mode in case.modes]
    answers = check([(jobs[number], mode) for number, mode in asked])
    by_case: list[dict[str, Verdict]] = [{} for _ in cases]
    for (number, mode), verdict in zip(asked, answers, strict=True):
        by_case[number][mode] = verdict
    return by_case


def _measured(row: Row, ranks: list[Outcome], alone: list[Outcome]) -> Row:
    crashes = [outcome.crash for outcome in (*ranks, *alone) if outcome.crash]
    if crashes:
        return replace(row, problems=(f"it crashes, so it is not silent:\n{crashes[0]}",))
    return replace(row, difference=compare(ranks, alone[0]))


def _judged(row: Row, job: Job) -> Row:
    """The row, with what ``shardwise verify`` says where nothing else says anything, and its problems."""
    if row.problems:
        return row
    problems = [_numbers(row)]
    problems += [_saying(row.bug, mode, verdict, job.script.parent) for mode, verdict in row.verdicts.items()]
    if row.bug is not None and row.bug.caught_by == "verify":
        verdict = verify(job)
        row = replace(row, wrong_numbers=verdict.first)
        problems += [] if verdict.caught else [f"verify: expected wrong numbers, got {verdict}"]
    return replace(row, problems=tuple(problem for problem in problems if problem))


def _numbers(row: Row) -> str:
    """What is wrong with the numbers; empty if nothing."""
    difference = row.difference
    if difference is None:
        return "" if row.hang else "no proof: its ranks run to their ends"
    off = difference.replicas if row.case.random else difference.largest
    if row.bug is None and off > TOLERANCE:
        return f"the unchanged program is off by {off:.1e}: {difference}"
    if row.bug is not None and off <= TOLERANCE:
        return f"no numeric proof: {difference}"
    return ""


def _saying(bug: Bug | None, mode: str, verdict: Verdict, directory: Path) -> str:
    """What is wrong with what the checker said in ``mode``; empty if nothing."""
    said = "; ".join(f"{error.code} at {error.file}:{error.line}: {error.text}" for error in verdict.errors)
    expected = bug.expected(mode) if bug else None
    if expected is None:
        if verdict.exit_code == 0:
            return ""
        return f"{mode}: expected no error and exit code 0, got exit code {verdict.exit_code}: {said or verdict.output}"
    file, line = expected_place(expected, directory)
    first = verdict.errors[0] if verdict.errors else None
    if first and (first.code, first.file, first.line) == (expected.code, file, line):
        return ""
    return f"{mode}: expected {expected.code} at {file}:{line}, got {said or verdict.output or 'nothing'}"
