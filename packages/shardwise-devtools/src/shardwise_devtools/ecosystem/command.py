"""``shardwise-devtools ecosystem``: run the frameworks, write what was found, compare it with another version's."""

from __future__ import annotations

from pathlib import Path

import click

from shardwise.diagnostics.result import ExitCode

from .environment import Environment
from .frameworks import FRAMEWORKS
from .report import difference, page
from .runs import load, run_case, save

ROOT = Path(__file__).parents[5]
PAGE = ROOT / "docs" / "ecosystem.md"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Run these frameworks alone; may be given several times.")
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
@click.option("--write", is_flag=True, help="Renew docs/ecosystem.md: what it says of the frameworks that were run.")
def ecosystem(
    only: tuple[str, ...], folder: Path, shardwise: Path, out: Path | None, against: Path | None, write: bool
) -> ExitCode:
    """Run training frameworks, as they are released, through shardwise.

    Exit codes: 0; with --against 1 where the two versions differ.
    """
    unknown = set(only) - {framework.name for framework in FRAMEWORKS}
    if unknown:
        known = ", ".join(framework.name for framework in FRAMEWORKS)
        raise click.UsageError(f"--only {', '.join(sorted(unknown))}: there is no such framework, only {known}")
    chosen = tuple(framework for framework in FRAMEWORKS if not only or framework.name in only)
    environment = Environment(folder)
    environment.prepare(chosen)
    out = out or folder / "findings.json"
    runs = [run for run in (load(out) if out.exists() else []) if only and run.framework not in only]
    for framework in chosen:
        for case in framework.cases:
            for command in case.commands:
                run = run_case(environment, framework, case, command, shardwise.absolute())
                click.echo(
                    f"{framework.name}, {case.name}, {command}: exit code {run.exit_code}, {run.duration_s:.0f} s"
                )
                runs.append(run)
                save(runs, out)
    if write:
        PAGE.write_text(page(FRAMEWORKS, runs, PAGE.read_text()))
    if against is None:
        return ExitCode.CLEAN
    told = difference(load(against), runs)
    click.echo(told or "no difference")
    return ExitCode.FINDINGS if told else ExitCode.CLEAN
