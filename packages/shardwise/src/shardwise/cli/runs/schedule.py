"""``--schedule``: the rank that is run alone is recorded as well, and what all ranks issue is written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from shardwise.diagnostics.result import RunResult
from shardwise.host.program import Program
from shardwise.uniformity.calls import Trace
from shardwise.uniformity.kept_calls import KeptCalls
from shardwise.uniformity.schedule import schedule_lines

from .run import CheckOptions, check_program


def check_recorded(program: Program, options: CheckOptions) -> tuple[RunResult, list[Trace]]:
    """The result of the one rank that is run, and what it issued."""
    from shardwise.uniformity.collective_trace import CollectiveRecorder

    kept = KeptCalls()
    result = check_program(program, options, CollectiveRecorder(kept, options.rank))
    return result, [Trace(options.rank, kept.events)]


def write_schedule(path: str, traces: Sequence[Trace], result: RunResult) -> None:
    """Write the file. A usage error if that is not possible."""
    lines = list(schedule_lines(traces, result.findings))
    try:
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--schedule {path}: cannot be written ({error.strerror})") from None
    if result.stopped is not None:
        click.echo(f"shardwise: {path} ends where the program was stopped", err=True)
