"""How do commands run on the ranks that a launcher has started? Every rank runs the command, and rank 0 prints.

``torchrun --nproc-per-node 4 -m shardwise verify train.py``: nothing is forked, and the devices and the back end are
those that are there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.result import RunResult
from shardwise.host.launcher import LaunchedRank
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from .progress import progress

if TYPE_CHECKING:
    from shardwise.verifier.launched import LaunchedRuns
    from shardwise.verifier.records.options import VerifyOptions
    from shardwise.verifier.records.subject import Subject
    from shardwise.verifier.runs.second_run import Command

    from .run import CheckOptions


def run_launched(
    me: LaunchedRank,
    subject: Subject,
    options: VerifyOptions,
    mesh: MeshShape | None,
    references: str,
    recording: list[str],
    report: Callable[[LaunchedRuns], int],
    again: Command | None = None,
) -> int:
    """The exit code of every rank. ``report`` prints what came of the runs, on one rank, and says the code.

    ``references``  a file of them, or nothing; ``recording`` is the command line that makes one.
    ``again``       this process, if it may run the command once more: ``report`` then asks for it with ``AGAIN``.
    """
    if mesh is not None and mesh.ranks != me.size:
        raise click.UsageError(f"--mesh {mesh} has {mesh.arithmetic} ranks, and the launcher has started {me.size}")
    from shardwise.verifier.launched import AGAIN, Launched

    axes = None if mesh is None else dict(mesh.axes)
    launched = Launched(me, subject, options, axes, references, recording, again)

    def conclude(runs: LaunchedRuns) -> int:
        code = report(runs)
        if code == AGAIN:
            drawn = "the ranks draw batches or random numbers of their own"
            click.echo(f"shardwise: {drawn}; once more, with all of them on one rank", err=True)
            return code
        click.echo(f"shardwise: {runs.travelled}", err=True)
        sys.stdout.flush()
        return code

    with progress(lambda: "running on one rank, then on the launched ranks", plain=me.rank == 0):
        return launched.run(report, conclude)


def check_launched(
    me: LaunchedRank, program: Program, options: CheckOptions, timeout_s: float, report: Callable[[RunResult], int]
) -> int:
    """Check ``program`` on every rank as it runs there; ``report`` prints what all found, on one rank."""
    from shardwise.verifier.runs.one_rank import merged_types
    from shardwise.worlds.launched.watch import Loss
    from shardwise.worlds.launched.world import joined_world

    from .run import check_program

    with open(os.dup(sys.stdout.fileno()), "w") as stdout:

        def tell(loss: Loss) -> None:
            came = [one for one in loss.crashes.values() if isinstance(one, RunResult)]
            text = loss.text if not came else ""
            details = "".join(f"\n  {one}" for one in loss.standings)
            with contextlib.redirect_stdout(stdout):
                if came:
                    report(merged_types(came))
                if text:
                    click.echo(f"the run on the launched ranks did not come to its end: {text}{details}")
            stdout.flush()

        def run() -> RunResult:
            result = check_program(program, options)
            if result.stopped is not None:
                world.job.crashed(result)
            return result

        with joined_world(me, timeout_s, tell) as world:
            results = world.run(run)
            code: int = world.agree(report(merged_types(results)) if results else None)
            return code


def recording_words(
    subject_words: tuple[str, ...], module: str | None, mesh: MeshShape | None, flags: list[str]
) -> list[str]:
    """The command line, behind ``verify --record FILE``, of the run on one rank."""
    named = [] if mesh is None else ["--mesh", str(mesh)]
    return [*flags, *named, *(["-m", module] if module else []), "--", *subject_words]
