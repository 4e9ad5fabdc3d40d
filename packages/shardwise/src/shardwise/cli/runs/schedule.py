"""``--schedule``: the rank that is run alone is recorded as well, and what all ranks issue is written to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.configuration.whole_file import write_whole
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import RunResult
from shardwise.host.program import Program
from shardwise.uniformity.calls import Trace, TracedCall
from shardwise.uniformity.kept_calls import KeptCalls
from shardwise.uniformity.schedule import schedule_lines

from .run import CheckOptions, check_program

if TYPE_CHECKING:
    from shardwise.uniformity.steps import StepEnds


def check_recorded(
    program: Program, options: CheckOptions, steps: StepEnds | None = None
) -> tuple[RunResult, list[Trace]]:
    """The result of the one rank that is run, and what it issued.

    ``steps``  are told where they end, and progress counts the calls.
    """
    from shardwise.uniformity.collective_trace import CollectiveRecorder

    kept = KeptCalls()
    trace = Trace(options.rank, kept.events)

    def status() -> str:
        calls = sum(1 for _ in trace.exchanges())
        made = sum(1 for event in trace.events if isinstance(event, TracedCall)) - calls
        if made and not calls:  # a mesh of thousands of ranks takes a while to make its groups
            return f"{counted(made, 'group')} of ranks made"
        return f"{counted(calls, 'collective')} counted"

    recorder = CollectiveRecorder(kept, options.rank)
    if steps is None:
        return check_program(program, options, recorder, None), [trace]
    with steps.noticed(kept.events):
        return check_program(program, options, recorder, status), [trace]


def write_schedule(path: str, traces: Sequence[Trace], result: RunResult) -> None:
    """Write the file. A usage error if that is not possible."""
    lines = list(schedule_lines(traces, result.findings))
    try:
        write_whole(Path(path), "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise click.UsageError(f"--schedule {path}: cannot be written ({error.strerror})") from None
    if result.stopped is not None:
        click.echo(f"shardwise: {path} ends where the program was stopped", err=True)
