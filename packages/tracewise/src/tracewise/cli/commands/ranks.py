"""`tracewise ranks`: do the ranks of a job agree, where do they part ways, and who left the expected schedule?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tracewise.cli.inputs import path_arguments
from tracewise.cli.main import DONE, FOUND, UNUSABLE
from tracewise.ranks.answers import RanksAnswer, ask
from tracewise.read.archive import InputError
from tracewise.read.json_text import to_json
from tracewise.read.source import open_sources


@click.command()
@path_arguments
@click.option("--plan", "--schedule", "plans", multiple=True, metavar="FILE",
              help="The expected schedule, from: shardwise check SCRIPT --ranks all --schedule FILE.")  # fmt: skip
@click.option("--run", "run_number", type=int, metavar="N", help="This run of the trace logs; the newest is default.")
@click.option("--all", "everything", is_flag=True, help="List every verdict, not only the first ten.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    paths: tuple[str, ...], plans: tuple[str, ...], run_number: int | None, everything: bool, as_json: bool
) -> int:
    """Compare the ranks of a job, from flight-recorder dumps, profiler traces or trace logs.

    Exit status: 0 they agree, 1 they do not, 2 cannot tell.
    """
    for plan in plans:
        if not Path(plan).is_file():
            raise InputError(f"--plan {plan}: no such file; write it with: shardwise check SCRIPT --schedule {plan}")
    with open_sources(paths) as sources:
        answer = ask(sources, [Path(plan) for plan in plans], run_number)
    click.echo(to_json(answer.as_json()) if as_json else "\n".join(lines(answer, None if everything else 10)))
    return DONE if answer.agrees else FOUND if answer.agrees is False else UNUSABLE


def lines(answer: RanksAnswer, limit: int | None = None) -> Iterator[str]:
    """The answer as text: headlines first, then all that is wrong, then what to know about the data."""
    for part in answer.parts:
        yield from _part(part.title, part.headline, part.details[:limit], part.notes)
        hidden = len(part.details) - len(part.details[:limit])
        if hidden:
            yield f"  ... and {hidden} more: --all"


def _part(title: str, headline: str, details: list[str], notes: list[str]) -> Iterator[Any]:
    yield f"{title}: {headline}"
    yield from (f"  - {text}" for text in details)
    yield from (f"  note: {text}" for text in notes)
