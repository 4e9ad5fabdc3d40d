"""Is every bug of the catalogue a bug, and does the checker say about it what the catalogue expects?"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from catalogue import Bug, apply, expected_place
from proof import Difference, Job, Outcome, compare, hangs, run_on
from verdict import MODES, Verdict, check
from verified import verify

STEPS = ("--dtype", "float64", "--steps", "2")
TOLERANCE = 1e-7
"""Relative. In float64 a right program stays below 1e-12; every bug is above 1e-3 in at least one gradient."""


@dataclass(frozen=True)
class Row:
    """What was measured about one program; ``bug`` is None for the unchanged one.

    ``verdicts`` by mode; the unchanged program is checked in every one, a bug with local and with global types, and one
    of ranks that diverge on all of them. ``hang``: how its ranks come to a stop; then there is no ``difference``.
    ``wrong_numbers`` is what ``shardwise verify`` names first, where it was asked.
    ``problems`` says in sentences what is not as the catalogue has it.
    """

    bug: Bug | None
    args: tuple[str, ...]
    difference: Difference | None
    verdicts: dict[str, Verdict]
    problems: tuple[str, ...]
    hang: str = ""
    wrong_numbers: str = ""

    @property
    def name(self) -> str:
        return self.bug.id if self.bug else " ".join(("unchanged program", *self.args))

    @property
    def random(self) -> bool:
        """Random draws differ from those on one rank, so only the ranks can be compared with each other."""
        return draws_random_numbers(self.args)


def draws_random_numbers(args: tuple[str, ...]) -> bool:
    return "--dropout" in args


def gather(bugs: list[Bug]) -> list[Row]:
    """Runs the unchanged program under all options that bugs need, then every bug, for real and under the checker."""
    options = list(dict.fromkeys(bug.args for bug in bugs))
    cases: list[tuple[Bug | None, tuple[str, ...]]] = [(None, args) for args in options]
    cases += [(bug, bug.args) for bug in bugs]
    with tempfile.TemporaryDirectory() as root:
        scripts = [apply(bug, Path(root, str(number))) for number, (bug, _) in enumerate(cases)]
        runs = [Job(script, (*STEPS, *args)) for script, (_, args) in zip(scripts, cases, strict=True)]
        ending = [run for run, (bug, _) in zip(runs, cases, strict=True) if not (bug and bug.hangs)]
        ended = dict(zip(ending, zip(run_on(4, ending), run_on(1, ending), strict=True), strict=True))
        verdicts = _verdicts(cases, scripts)
        rows = []
        for (bug, args), run, said in zip(cases, runs, verdicts, strict=True):
            if run in ended:
                ranks, (reference,) = ended[run]
                rows.append(_verified(_row(bug, args, ranks, reference, said, run.script.parent), run))
            else:
                rows.append(_hanging_row(bug, args, hangs(run), said, run.script.parent))
        return rows


def _verified(row: Row, job: Job) -> Row:
    """The row, with what ``shardwise verify`` says where nothing else says anything."""
    if row.bug is None or row.bug.caught_by != "verify":
        return row
    verdict = verify(job)
    problems = () if verdict.caught else (f"verify: expected wrong numbers, got {verdict}",)
    return replace(row, wrong_numbers=verdict.first, problems=(*row.problems, *problems))


def _hanging_row(bug: Bug, args: tuple[str, ...], hang: str, verdicts: dict[str, Verdict], directory: Path) -> Row:
    problems = ["" if hang else "no proof: its ranks run to their ends"]
    problems += [_saying(bug, mode, verdict, directory) for mode, verdict in verdicts.items()]
    return Row(bug, args, None, verdicts, tuple(problem for problem in problems if problem), hang)


def _verdicts(cases: list[tuple[Bug | None, tuple[str, ...]]], scripts: list[Path]) -> list[dict[str, Verdict]]:
    asked = [(number, mode) for number, (bug, _) in enumerate(cases) for mode in _modes(bug)]
    answers = check([(Job(scripts[number], cases[number][1]), mode) for number, mode in asked])
    by_case: list[dict[str, Verdict]] = [{} for _ in cases]
    for (number, mode), verdict in zip(asked, answers, strict=True):
        by_case[number][mode] = verdict
    return by_case


def _modes(bug: Bug | None) -> tuple[str, ...]:
    if bug is None:
        return tuple(MODES)
    return ("local", "global", "ranks") if bug.hangs else ("local", "global")


def _row(
    bug: Bug | None,
    args: tuple[str, ...],
    ranks: list[Outcome],
    reference: Outcome,
    verdicts: dict[str, Verdict],
    directory: Path,
) -> Row:
    crashes = [outcome.crash for outcome in (*ranks, reference) if outcome.crash]
    if crashes:
        return Row(bug, args, None, verdicts, (f"it crashes, so it is not silent:\n{crashes[0]}",))
    difference = compare(ranks, reference)
    problems = [_numbers(bug, args, difference)]
    problems += [_saying(bug, mode, verdict, directory) for mode, verdict in verdicts.items()]
    return Row(bug, args, difference, verdicts, tuple(problem for problem in problems if problem))


def _numbers(bug: Bug | None, args: tuple[str, ...], difference: Difference) -> str:
    """What is wrong with the numbers; empty if nothing."""
    off = difference.replicas if draws_random_numbers(args) else difference.largest
    if bug is None and off > TOLERANCE:
        return f"the unchanged program is off by {off:.1e}: {difference}"
    if bug is not None and off <= TOLERANCE:
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
