"""What becomes of a wrong program after the fixes that are offered? It is run in processes of its own."""

from __future__ import annotations

import enum
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from shardwise.cli.runs.fix_search import Texts, Trial, Verified, candidates, search
from shardwise.cli.runs.run import check_program
from shardwise.configuration.policy import Policy
from shardwise.diagnostics.formats import from_json, to_json
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.overlay import overlay_of, texts_shown
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject

from .subjects import Subject

TIMEOUT_S = 200.0


class Came(enum.Enum):
    """How far the fixes of a program go."""

    PROVEN = "clean and right"
    OPEN = "clean, numbers not compared"
    WRONG = "clean and wrong"
    """A fix hides the mistake."""
    LEFT = "findings are left"
    NOTHING = "no structured fix"
    SILENT = "no finding"


@dataclass(frozen=True)
class Tried:
    """A program, its codes, and what the best combination of fixes comes to.

    ``hides``  combinations after which the types are clean and the numbers wrong.
    """

    name: str
    codes: tuple[str, ...]
    unfixed: tuple[str, ...]
    came: Came
    tried: int
    helps: tuple[str, ...] = ()
    diff: str = ""
    hides: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Runner:
    """What checks and verifies a subject with other texts, each time in a process of its own."""

    subject: Subject

    def check(self, texts: Texts) -> RunResult | None:
        """What ``check`` says; None if the process dies."""
        text = _apart(texts, _check, self.subject)
        if not isinstance(text, str):
            return None
        with texts_shown(texts):
            return from_json(text)

    def verify(self, texts: Texts) -> Verified | None:
        """How ``verify`` ends."""
        code = _apart(texts, _verify, self.subject)
        return Verified(code) if isinstance(code, int) else None


def try_fixes(subject: Subject, tell: Callable[[str], None]) -> Tried:
    """The fixes of one program, tried until a combination is proven."""
    runner = Runner(subject)
    result = runner.check({})
    if result is None or not result.errors:
        return Tried(subject.name, (), (), Came.SILENT, 0)
    codes = tuple(finding.code for finding in result.errors)
    offered = {id(finding) for finding, _ in candidates(result)}
    unfixed = tuple(finding.code for finding in result.errors if id(finding) not in offered)
    trials = list(search(result, runner, tell))
    hides = tuple(
        tuple(fix.help for fix in one.fixes)
        for one in trials
        if one.checked == ExitCode.CLEAN and one.verified == ExitCode.FINDINGS
    )
    best = min(trials, key=lambda one: _rank(_came(one)), default=None)
    if best is None:
        return Tried(subject.name, codes, unfixed, Came.NOTHING, 0)
    helps, diff = tuple(fix.help for fix in best.fixes), "".join(edit.diff for edit in best.edits)
    return Tried(subject.name, codes, unfixed, _came(best), len(trials), helps, diff, hides)


def _came(trial: Trial) -> Came:
    if trial.checked != ExitCode.CLEAN:
        return Came.LEFT
    return {ExitCode.CLEAN: Came.PROVEN, ExitCode.FINDINGS: Came.WRONG}.get(
        ExitCode(trial.verified if trial.verified is not None else 3), Came.OPEN
    )


def _rank(came: Came) -> int:
    return list(Came).index(came)


def summary(done: Sequence[Tried]) -> str:
    """One line of counts."""
    counts = Counter(one.came for one in done)
    hidden = sum(bool(one.hides) for one in done)
    told = ", ".join(f"{counts[one]} {one.value}" for one in Came)
    return f"{len(done)} programs: {told}; in {hidden} a combination of fixes is clean and wrong"


def _check(subject: Subject) -> str:
    program, options = subject.checked()
    return to_json(Policy().applied(check_program(program, options), judges_comments=False))


def _verify(subject: Subject) -> int | None:
    if subject.mesh is None:
        return None
    return int(verify_subject(Script(subject.numbers), dict(subject.mesh.axes), subject.verified()).exit_code)


def _apart(texts: Texts, run: Callable[[Subject], Any], subject: Subject) -> object:
    """What ``run`` gives in a fork of this process with the texts laid over the files; None if it fails."""
    with overlay_of(texts) as variables, tempfile.TemporaryDirectory(prefix="shardwise-") as folder:
        answer = Path(folder) / "answer"
        process = get_context("fork").Process(target=_forked, args=(run, subject, variables, answer))
        process.start()
        process.join(TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
        return pickle.loads(answer.read_bytes()) if answer.is_file() else None


def _forked(run: Callable[[Subject], Any], subject: Subject, variables: Mapping[str, str], answer: Path) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        done = run(subject)
    except BaseException:  # the program may do anything, and nobody is told here
        os._exit(1)
    answer.write_bytes(pickle.dumps(done))
    os._exit(0)
