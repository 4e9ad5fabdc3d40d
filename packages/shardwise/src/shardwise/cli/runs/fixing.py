"""``shardwise check --diff`` and ``--fix``: the fixes after which the types are clean and the numbers are right.

A line of help is about one call; whether the program is right after it, two commands say. Every combination of fixes
that ``fix_search`` finds is checked in a process of its own, with the changed text laid over the files, and what is
clean is verified: run on the mesh and on one rank. The first combination that passes both is the fix; without one
nothing is changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from shardwise.diagnostics.finding import location_text, shown_path
from shardwise.diagnostics.formats import from_json
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.printing.printable import safe_str
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.kept_process import KeptProcess
from shardwise.host.overlay import overlay_of, texts_shown
from shardwise.host.program import Program
from shardwise.interop.running.recording import KIND_OF
from shardwise.mesh.shape import MeshShape

from ..options.output_file import write_edits
from .command_run import command_run
from .fix_search import Texts, Trial, Verified, candidates, search
from .progress import progress


@dataclass(frozen=True)
class Rerun:
    """How the program is checked and verified again: the options and words of the command line, and where it is run."""

    checking: Sequence[str]
    verifying: Sequence[str] | None
    other: KeptProcess

    def check(self, texts: Texts) -> RunResult | None:
        """What ``check`` says of the program with these texts."""
        _, output = self._run("check", self.checking, texts)
        with texts_shown(texts):  # columns are those of what ran
            try:
                return from_json(output)
            except ValueError:
                return None

    def verify(self, texts: Texts) -> Verified | None:
        """What ``verify`` says."""
        if self.verifying is None:
            return None
        code, output = self._run("verify", self.verifying, texts)
        return Verified(code, _said(output))

    def _run(self, command: str, options: Sequence[str], texts: Texts) -> tuple[int, str]:
        with overlay_of(texts) as variables:
            return self.other.call(command_run, [command, "--format", "json", *options], variables)


def rerun_of(
    program: Program,
    mesh: MeshShape | None,
    world_size: int,
    typing: Sequence[str],
    options: Sequence[str],
    other: KeptProcess,
    own_mesh: str = "",
) -> Rerun:
    """How the two commands run ``program`` again.

    ``typing``    the options that say how types are checked, which both take; ``options`` those of ``check`` alone.
    ``own_mesh``  the mesh that the program has made itself, which the numbers are compared on where ``mesh`` is None.
    """
    words = ["-m", program.module] if program.module else [program.path]
    words += ["--", *program.arguments]
    ranks = ["--mesh", str(mesh)] if mesh is not None else ["--world-size", str(world_size)]
    compared = mesh or MeshShape.parse(own_mesh.replace(" ", "") or f"ranks={world_size}")
    verify = ["--mesh", str(compared), *typing, *words] if compared.ranks > 1 else None
    return Rerun([*ranks, *typing, *options, *words], verify, other)


def _said(output: str) -> str:
    """What the JSON of ``verify`` names first as wrong, else why it is no proof, and where; empty if it is one."""
    try:
        found = json.loads(output)
    except ValueError:
        return ""
    numbers, failure = found.get("numbers") or {}, found.get("failure")
    for first in numbers.get("disagreements") or ():
        return f"{KIND_OF[first['kind']].format(name=first['name'])}{_where(first['place'])} {first['said']}"
    if failure is not None:
        return f"the run {failure['where']} does not come to its end{_where(failure['place'])}: {failure['text']}"
    for first in numbers.get("not_compared") or ():
        return f"{KIND_OF[first['kind']].format(name=first['name'])}{_where(first['place'])}: {first['reason']}"
    return str(next(iter(numbers.get("open") or ()), ""))


def _where(place: Mapping[str, object] | None) -> str:
    return (
        "" if place is None else f" ({shown_path(str(place['file']), os.getcwd())}:{place['line']}:{place['column']})"
    )


def mend(result: RunResult, rerun: Rerun, write: bool) -> ExitCode:
    """Try the fixes of ``result``, say what came of it, and write what is proven if that is asked for."""
    doing, tried = [""], []
    with progress(lambda: doing[0]):
        for trial in search(result, rerun, lambda text: doing.__setitem__(0, text)):
            tried.append(trial)
    proven = bool(tried) and tried[-1].is_proven
    if proven and write:
        write_edits(tried[-1].edits)
    if result.errors:
        click.echo()
        for line in told(result, tried, write, os.getcwd()):
            click.echo(line)
    offered = choices(tried) if write and not proven and sys.stdin.isatty() else []
    chosen = ask(offered) if offered else None
    if chosen is not None:
        write_edits(chosen.edits)
        for edit in chosen.edits:
            click.echo(edit.diff.rstrip("\n"))
        return ExitCode.INCONCLUSIVE
    return ExitCode.CLEAN if proven and write else result.exit_code


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
        files = {edit.location.file for finding in result.errors for fix in finding.fixes for edit in fix.edits}
        if files:
            listed = ", ".join(sorted(shown_path(file, root) for file in files))
            yield f"no fix: the repairs are edits of what is no file of the program: {listed}"
        else:
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
    compared = wrong == len(clean)
    how = (
        f"{counted(len(tried), 'combination')} of fixes tried"
        if tried
        else "no repair can be made where its call stands"
    )
    yield f"nothing is changed: {how}"
    if wrong:
        yield f"  {wrong} of them would leave the types clean and the numbers wrong"
        yield from _reasons(trial for trial in clean if trial.verified == ExitCode.FINDINGS)
    if not compared:
        yield f"  {len(clean) - wrong} of them would leave the types clean, but the numbers could not be compared"
        yield from _reasons(trial for trial in clean if trial.verified != ExitCode.FINDINGS)
    if len(clean) < len(tried):
        yield f"  {len(tried) - len(clean)} of them would leave findings, or a program that does not run"
    for finding, fixes in candidates(result):
        where = "" if finding.location is None else f"{location_text(finding.location, root)}: "
        choice = len(fixes) > 1 or any(fix.choice for fix in fixes)
        yield f"{where}{finding.code} {'leaves a choice' if choice else 'has one fix, which is not proven'}:"
        yield from (f"  {safe_str(fix.help)}" for fix in fixes)


def _reasons(trials: Iterable[Trial]) -> Iterator[str]:
    """What ``verify`` says of them, each once."""
    yield from (f"    {safe_str(said)}" for said in dict.fromkeys(trial.differs for trial in trials) if said)
