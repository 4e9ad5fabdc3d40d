"""``--schedule``: the rank that is run alone is recorded as well, and what all ranks issue is written to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from shardwise.diagnostics.result import RunResult
from shardwise.host.program import Program
from shardwise.uniformity.calls import Trace, TracedCall, Wait
from shardwise.uniformity.schedule import schedule_lines
from shardwise.worlds.absent_objects import OtherRanksNeeded

from .run import CheckOptions, check_program


class KeptCalls:
    """The calls of the one rank that is run; a ``collective_trace.Link`` to nobody."""

    def __init__(self) -> None:
        self.events: list[TracedCall | Wait] = []

    def post(self, event: TracedCall | Wait, parcel: bytes | None = None, fetches: bool = False) -> int:
        """Keep an event; its position."""
        self.events.append(event)
        return len(self.events) - 1

    def fetch(self, position: int) -> Mapping[int, bytes] | None:
        """Nobody else hands anything in. OtherRanksNeeded where the program goes on with what it receives."""
        event = self.events[position]
        if isinstance(event, TracedCall) and event.kind == "recv" and not event.shapes:
            raise OtherRanksNeeded(f"a rank receives objects from {event.what.rpartition(' from ')[2]}")
        return None

    def mesh(self, sizes: Sequence[int]) -> None:
        """A mesh has been made; there are no ranks to choose."""

    def tell(self, what: object) -> None:
        """Nobody is there to compare with."""


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
