"""`tracewise record`: runs a command with tracing on, into a fresh folder, and reports what happened."""

from __future__ import annotations

import datetime
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import click

from tracewise.cli.inputs import opened_run
from tracewise.find.answers import find_answers
from tracewise.ranks.answers import ask
from tracewise.read.archive import InputError
from tracewise.read.json_text import to_json
from tracewise.read.source import open_sources
from tracewise.report.writer import write_report

FULL = {"LOG_TLPARSE": "1", "INDUCTOR_PROVENANCE": "1", "TORCH_FR_BUFFER_SIZE": "2000"}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", metavar="FOLDER", help="A new folder; tracewise-<time> by default.")
@click.option("--full", is_flag=True, help="Also provenance, estimated run times and the flight recorder.")
@click.option("--no-report", is_flag=True, help="Keep the traces and write no report.")
@click.argument("program", nargs=-1, required=True, metavar="-- COMMAND...")
def command(output: str | None, full: bool, no_report: bool, program: tuple[str, ...]) -> int:
    """Run a command with tracing on and write a report of it. Ends with the command's own status."""
    folder = Path(output or f"tracewise-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists; give another folder with -o, so that runs are not mixed up")
    (folder / "traces").mkdir(parents=True)
    status, started, ended = run_program(program, variables(folder, full))
    facts = {"command": list(program), "started": started, "ended": ended, "status": status}
    (folder / "command.json").write_bytes(to_json(facts) + b"\n")
    for line in summary(folder, report=not no_report):
        click.echo(line, err=True)
    return status


def variables(folder: Path, full: bool) -> dict[str, str]:
    """The environment that makes torch write into ``folder``."""
    found = {"TORCH_TRACE": str((folder / "traces").absolute())}
    if full:
        (folder / "flight").mkdir()
        found |= FULL | {"TORCH_FR_DUMP_TEMP_FILE": str((folder / "flight" / "fr_").absolute())}
    return found


def run_program(program: tuple[str, ...], added: dict[str, str]) -> tuple[int, float, float]:
    """The command's status as a shell tells it, and when it began and ended. A Ctrl-C is the command's to answer."""
    started = time.time()
    try:
        process = subprocess.Popen(program, env={**os.environ, **added})
    except OSError as error:
        raise InputError(f"{shlex.join(program)}: cannot be started ({error.strerror})") from None
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt:
            continue
    return (128 - status if status < 0 else status), started, time.time()


def summary(folder: Path, *, report: bool) -> Iterator[str]:
    """Writes the report and says what there is."""
    if not any((folder / "traces").iterdir()):
        yield f"tracewise: no trace log in {folder / 'traces'}: the program compiled nothing"
    elif report:
        with opened_run((str(folder / "traces"),)) as run:
            answers = find_answers(run)
            write_report(answers, folder / "report")
        yield (
            f"tracewise: {len(answers.run.compilations)} compilations, {len(answers.problems)} problems: "
            f"{folder / 'report' / 'index.html'}"
        )
    else:
        yield f"tracewise: traces in {folder / 'traces'}"
    flight = folder / "flight"
    if flight.is_dir() and any(flight.iterdir()):
        with open_sources([flight]) as sources:
            for part in ask(sources, []).parts:
                yield f"tracewise: {part.title}: {part.headline}"
