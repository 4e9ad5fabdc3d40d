"""`tracewise report`: the static report of a run."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import click

from tracewise.cli.inputs import opened_run, path_arguments, progress_of, run_options
from tracewise.cli.main import FOUND
from tracewise.find.answers import Answers, find_answers
from tracewise.read.json_text import to_json
from tracewise.report.folder import check_target
from tracewise.report.writer import write_report


@click.command()
@path_arguments
@click.option("-o", "--output", metavar="OUT", default="tracewise-report", show_default=True, help="Folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if tracewise wrote it.")
@click.option("--open/--no-open", "is_open", default=False, help="Open the report in the browser.")
@click.option("--strict", is_flag=True, help="End with status 1 if there is a problem or something was not understood.")
@click.option("--json", "as_json", is_flag=True, help="Print the answers as one JSON object.")
@run_options
def command(
    paths: tuple[str, ...],
    output: str,
    overwrite: bool,
    is_open: bool,
    strict: bool,
    as_json: bool,
    run_number: int | None,
    ranks: str | None,
) -> int:
    """Write a folder of HTML pages about a run; open its index.html."""
    target = Path(output)
    check_target(target, overwrite)
    with opened_run(paths, run_number, ranks) as run:
        answers = find_answers(run)
        write_report(answers, target, overwrite=overwrite, progress=progress_of(sys.stderr))
    click.echo(to_json(answers.as_json()) if as_json else summary(answers, target))
    if is_open:
        webbrowser.open((target / "index.html").absolute().as_uri())
    return FOUND if strict and not answers.is_clean else 0


def summary(answers: Answers, target: Path) -> str:
    """What the overview says in a line, and where it is."""
    damage = sum(answers.run.health.damage.values())
    return (
        f"{len(answers.run.compilations)} compilations, {len(answers.problems)} problems, "
        f"{answers.recompilations} recompilations"
        + (f", {damage} records or lines not understood" if damage else "")
        + f"\n{target / 'index.html'}"
    )
