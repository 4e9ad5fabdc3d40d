"""``shardwise-devtools ecosystem``: run the frameworks, write what was found, compare it with another version's."""

from __future__ import annotations

from pathlib import Path

import click

from shardwise.diagnostics.result import ExitCode

from .environment import Environment
from .frameworks import ALL, FRAMEWORKS, VERIFY
from .planted import BUGS, planted
from .report import difference, page
from .runs import Run, load, run_case, save

ROOT = Path(__file__).parents[5]
PAGE = ROOT / "docs" / "ecosystem.md"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Run these frameworks alone; may be given several times.")
@click.option(
    "--case", "cases", multiple=True, metavar="NAME", help="Run these programs alone; may be given several times."
)
@click.option(
    "--command", "commands", multiple=True, type=click.Choice(ALL), help="Run these commands of shardwise alone."
)
@click.option("--folder", type=click.Path(path_type=Path), default=ROOT / "build" / "ecosystem", help="Where all is.")
@click.option(
    "--shardwise",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=ROOT,
    help="The source tree of the version to run, e.g. a git worktree (default: this one).",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Where to write the findings (default: findings.json there)."
)
@click.option("--against", type=click.Path(path_type=Path, exists=True), help="Show the difference to these findings.")
@click.option("--bugs", is_flag=True, help="Run the planted bugs, and what is right stays as it was found.")
@click.option("--write", is_flag=True, help="Renew docs/ecosystem.md: what it says of the frameworks that were run.")
def ecosystem(
    only: tuple[str, ...],
    cases: tuple[str, ...],
    commands: tuple[str, ...],
    folder: Path,
    shardwise: Path,
    out: Path | None,
    against: Path | None,
    bugs: bool,
    write: bool,
) -> ExitCode:
    """Run training frameworks, as they are released, through shardwise.

    Exit codes: 0; with --against 1 where the two versions differ.
    """
    unknown = set(only) - {framework.name for framework in FRAMEWORKS}
    if unknown:
        known = ", ".join(framework.name for framework in FRAMEWORKS)
        raise click.UsageError(f"--only {', '.join(sorted(unknown))}: there is no such framework, only {known}")
    chosen = tuple(framework for framework in FRAMEWORKS if not only or framework.name in only)
    absent = set(cases) - {case.name for framework in chosen for case in framework.cases}
    if absent:
        raise click.UsageError(f"--case {', '.join(sorted(absent))}: there is no such program")
    environment = Environment(folder)
    environment.prepare(chosen)
    out = out or folder / "findings.json"
    runs = load(out) if out.exists() else []

    def keep(run: Run) -> None:
        click.echo(f"{', '.join(run.key)}: exit code {run.exit_code}, {run.duration_s:.0f} s")
        runs[:] = [*(one for one in runs if one.key != run.key), run]
        save(runs, out)

    for framework in chosen:
        for case in framework.cases if not bugs else ():
            if cases and case.name not in cases:
                continue
            for command in (one for one in case.commands if not commands or one in commands):
                keep(run_case(environment, framework, case, command, shardwise.absolute()))
        for bug in BUGS if bugs else ():
            if bug.framework == framework.name and (not cases or bug.case in cases):
                wrong, first = planted(environment, framework, bug)
                keep(run_case(environment, framework, wrong, VERIFY, shardwise.absolute(), first))
    if write:
        PAGE.write_text(page(FRAMEWORKS, runs, PAGE.read_text()))
    if against is None:
        return ExitCode.CLEAN
    told = difference(load(against), runs)
    click.echo(told or "no difference")
    return ExitCode.FINDINGS if told else ExitCode.CLEAN
