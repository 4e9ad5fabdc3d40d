"""`tracewise report`: the static report of a run, or of each."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import click

from tracewise.cli.inputs import opened_runs, progress_of, run_options
from tracewise.cli.latest import latest_folder
from tracewise.cli.main import FOUND
from tracewise.find.answers import Answers, find_answers
from tracewise.read.json_text import to_json
from tracewise.report.folder import check_target
from tracewise.report.writer import write_report


@click.command()
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("-o", "--output", metavar="OUT", default="tracewise-report", show_default=True, help="Folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if tracewise wrote it.")
@click.option("--latest", is_flag=True, help="Take the newest trace that torch left on this machine.")
@click.option("--all", "is_all", is_flag=True, help="A report of each run, in OUT/run-0, OUT/run-1, ...")
@click.option("--redact", is_flag=True, help="Replace secrets, home folders, user and host names.")
@click.option("--open/--no-open", "is_open", default=False, help="Open the report in the browser.")
@click.option("--strict", is_flag=True, help="End with status 1 if there is a problem or something was not understood.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as one JSON object.")
@run_options
def command(
    paths: tuple[str, ...],
    output: str,
    overwrite: bool,
    latest: bool,
    is_all: bool,
    redact: bool,
    is_open: bool,
    strict: bool,
    as_json: bool,
    run_number: int | None,
    ranks: str | None,
) -> int:
    """Write a folder of HTML pages about a run; open its index.html."""
    if bool(paths) == latest:
        raise click.UsageError("give either PATH... or --latest")
    if is_all and run_number is not None:
        raise click.UsageError("--all and --run exclude each other")
    if latest:
        paths = (str(latest_folder()),)
    if not is_all:
        check_target(Path(output), overwrite)
    found: list[Answers] = []
    for run in opened_runs(paths, run_number, ranks, is_all=is_all, is_redacted=redact):
        target = Path(output) / f"run-{run.number}" if is_all else Path(output)
        answers = find_answers(run)
        write_report(answers, target, overwrite=overwrite, progress=progress_of(sys.stderr, "pages written"))
        found.append(answers)
        if not as_json:
            click.echo(summary(answers, target))
        if is_open:
            webbrowser.open((target / "index.html").absolute().as_uri())
    if as_json:
        click.echo(to_json({"runs": [answers.as_json() for answers in found]} if is_all else found[0].as_json()))
    return FOUND if strict and not all(answers.is_clean for answers in found) else 0


def summary(answers: Answers, target: Path) -> str:
    """What the overview says in a line, and where it is."""
    damage = sum(answers.run.health.damage.values())
    return (
        f"{len(answers.run.compilations)} compilations, {len(answers.problems)} problems, "
        f"{answers.recompilations} recompilations"
        + (f", {damage} records or lines not understood" if damage else "")
        + f"\n{target / 'index.html'}"
    )
