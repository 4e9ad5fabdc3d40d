"""``shardwise check --diff`` and ``--fix``: the fixes after which the types are clean and the numbers are right.

A line of help is about one call; whether the program is right after it, two commands say. Every combination of fixes
is checked in a process of its own, with the changed text laid over the files, and what is clean is verified: run on the
mesh and on one rank. The first combination that passes both is the fix; without one nothing is changed.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from shardwise.diagnostics.finding import Finding, location_text
from shardwise.diagnostics.fix import Edit, Fix
from shardwise.diagnostics.limits import counted
from shardwise.diagnostics.printable import safe_str
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.overlay import VARIABLE
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape
from shardwise.rewriting.editing import edited
from shardwise.rewriting.file_edit import FileEdit, read_source

MOST_TRIED = 12
"""Combinations of fixes that are tried, the ones that are offered first before the others."""


@dataclass(frozen=True)
class Trial:
    """A combination of fixes that was tried.

    ``checked``   how ``check`` ends after it.
    ``verified``  how ``verify`` ends after it; None if ``check`` was not clean.
    """

    fixes: tuple[Fix, ...]
    edits: tuple[FileEdit, ...]
    checked: int
    verified: int | None = None

    @property
    def is_proven(self) -> bool:
        """The types are clean, and the numbers are those of one device."""
        return self.checked == ExitCode.CLEAN and self.verified == ExitCode.CLEAN


@dataclass(frozen=True)
class Rerun:
    """How the program is checked and verified again: the options and words of the command line."""

    check: Sequence[str]
    verify: Sequence[str] | None

    def ends(self, command: str, options: Sequence[str], overlay: Path) -> int:
        """The exit code of a command on the program with the overlay."""
        done = subprocess.run(
            [sys.executable, "-m", "shardwise", command, "--format", "json", *options],
            env=os.environ | {VARIABLE: str(overlay)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode


def rerun_of(
    program: Program, mesh: MeshShape | None, world_size: int, typing: Sequence[str], options: Sequence[str]
) -> Rerun:
    """How the two commands run ``program`` again.

    ``typing``   the options that say how types are checked, which both take; ``options`` those of ``check`` alone.
    """
    words = ["-m", program.module] if program.module else [program.path]
    words += ["--", *program.arguments]
    ranks = ["--mesh", str(mesh)] if mesh is not None else ["--world-size", str(world_size)]
    verify = ["--mesh", str(mesh if mesh is not None else f"ranks={world_size}"), *typing, *words]
    return Rerun([*ranks, *typing, *options, *words], verify if world_size > 1 else None)


def candidates(result: RunResult) -> list[tuple[Finding, tuple[Fix, ...]]]:
    """The errors whose repairs are edits of files, with these."""
    found = []
    for finding in result.errors:
        fixes = tuple(fix for fix in finding.fixes if all(Path(edit.location.file).is_file() for edit in fix.edits))
        if fixes:
            found.append((finding, fixes))
    return found


def trials(result: RunResult, rerun: Rerun, tell: Callable[[str], None]) -> Iterator[Trial]:
    """What becomes of the program with one fix for each finding, until a combination is proven."""
    choices = [fixes for _, fixes in candidates(result)]
    if not choices:
        return
    for number, fixes in enumerate(itertools.islice(itertools.product(*choices), MOST_TRIED), 1):
        edits = edits_of(fixes)
        if edits is None:
            continue
        tell(f"trying combination {number} of fixes")
        with tempfile.TemporaryDirectory(prefix="shardwise-") as folder:
            overlay = Path(folder) / "overlay.json"
            overlay.write_text(json.dumps({os.path.realpath(edit.path): edit.after for edit in edits}), "utf-8")
            checked = rerun.ends("check", rerun.check, overlay)
            verified = None
            if checked == ExitCode.CLEAN and rerun.verify is not None:
                tell(f"comparing the numbers of combination {number} with one rank's")
                verified = rerun.ends("verify", rerun.verify, overlay)
        trial = Trial(fixes, edits, checked, verified)
        yield trial
        if trial.is_proven:
            return


def edits_of(fixes: Sequence[Fix]) -> tuple[FileEdit, ...] | None:
    """The files that the fixes change; None if together they make no program."""
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for fix in fixes:
        for edit in fix.edits:
            by_file[edit.location.file].append(edit)
    changed = []
    for file, edits in by_file.items():
        before = read_source(Path(file))
        after = edited(before, edits)
        if after is None:
            return None
        changed.append(FileEdit(Path(file), before, after))
    return tuple(changed)


def choices(tried: Sequence[Trial]) -> list[Trial]:
    """The combinations that a person may choose: with them the types are clean, and the numbers could not be compared.

    Those with wrong numbers are none.
    """
    open_ends = (None, ExitCode.INCONCLUSIVE)
    return [one for one in tried if one.checked == ExitCode.CLEAN and one.verified in open_ends]


def ask(offered: Sequence[Trial]) -> Trial | None:
    """Which of them, asked on the terminal; None if none."""
    for number, trial in enumerate(offered, 1):
        first, *others = (safe_str(fix.help) for fix in trial.fixes)
        click.echo(f"  {number}: {first}")
        for line in others:
            click.echo(f"     {line}")
    said = "the types are clean with each, and the numbers could not be compared; which one, 0 for none"
    number = click.prompt(said, type=click.IntRange(0, len(offered)), default=0)
    return offered[number - 1] if number else None


def told(result: RunResult, tried: Sequence[Trial], written: bool, root: str) -> Iterator[str]:
    """What the trials came to, as text."""
    if not candidates(result):
        yield "no fix: none of the repairs is an edit that can be made without knowing more than the program says"
        return
    last = tried[-1] if tried else None
    if last is not None and last.is_proven:
        for edit in last.edits:
            yield edit.diff.rstrip("\n")
        yield ""
        yield from (f"{'done' if written else 'fix'}: {safe_str(fix.help)}" for fix in last.fixes)
        yield "after it the types are clean, and verify finds the numbers of one rank"
        return
    clean = [trial for trial in tried if trial.checked == ExitCode.CLEAN]
    wrong = sum(trial.verified == ExitCode.FINDINGS for trial in clean)
    yield f"nothing is changed: {counted(len(tried), 'combination')} of fixes tried"
    if wrong:
        yield f"  {wrong} of them would leave the types clean and the numbers wrong"
    for finding, fixes in candidates(result):
        where = "" if finding.location is None else f"{location_text(finding.location, root)}: "
        yield f"{where}{finding.code} leaves a choice:"
        yield from (f"  {safe_str(fix.help)}" for fix in fixes)
