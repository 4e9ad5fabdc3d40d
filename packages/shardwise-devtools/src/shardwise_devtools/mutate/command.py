"""``shardwise mutate``: what would be noticed if a line of this program were wrong? Makes the mistakes and looks.

A tool for those who build the checker, or want to know how far to trust it on their own code.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from shardwise.cli.options.mesh_option import MeshParam
from shardwise.cli.runs.progress import progress
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

EPILOG = """\b
Examples:
  shardwise mutate train.py --mesh dp=2,tp=2 -- --dp {dp} --tp {tp} --steps 1
  shardwise mutate train.py --mesh dp=2 --operator drop --operator double --list
"""


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="SCRIPT [-- SCRIPT ARGS]")
@click.option(
    "--mesh", type=MeshParam(), metavar="AXES", required=True, help="Axes and sizes, outermost first, e.g. dp=2,tp=2."
)
@click.option(
    "--operator", "operators", multiple=True, metavar="NAME", help="Only mistakes of this kind; may be given again."
)
@click.option("--list", "listed", is_flag=True, help="Show the mutants and run none.")
@click.option(
    "--explained",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A TOML file with reasons for survivors and false alarms that have been looked at.",
)
@click.option("--rtol", type=click.FloatRange(min=0.0), metavar="R", help="As for shardwise verify.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    metavar="N",
    help="Mutants judged at a time; each starts a process per rank (default: one per core).",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the report (default: text)."
)
@click.option("--all", "everything", is_flag=True, help="Show every mutant, not survivors and false alarms only.")
def mutate(
    words: tuple[str, ...],
    mesh: MeshShape,
    operators: tuple[str, ...],
    listed: bool,
    explained: Path | None,
    rtol: float | None,
    jobs: int,
    form: str,
    everything: bool,
) -> ExitCode:
    """Make one mistake at a time in a program, and see whether numbers and types notice.

    Every mutant runs on the mesh and on one rank, as under shardwise verify; its numbers decide whether it is wrong.
    Wrong and accepted by the checker: it survived. Right and rejected: a false alarm. Nothing on disk is changed.

    Exit codes: 0 no survivor and no false alarm that is not explained, 1 otherwise, 2 no verdict (wrong usage, the
    program itself does not pass).
    """
    if not words:
        raise click.UsageError("say which script to mutate: shardwise mutate SCRIPT --mesh dp=2,tp=2")
    program = Program(path=words[0], arguments=words[1:])
    program.require()
    if mesh.ranks == 1:
        raise click.UsageError(f"--mesh {mesh} has one rank: no mistake of parallelism shows there")
    from .explained import read_explained
    from .mutants import mutants_in
    from .operators import OPERATORS

    if unknown := [name for name in operators if name not in OPERATORS]:
        raise click.UsageError(f"there is no operator {unknown[0]}; there are {', '.join(OPERATORS)}")
    try:
        reasons = read_explained(explained) if explained is not None else ()
    except SpmdValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        mutants = mutants_in(Path(program.path), mesh.names, operators)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the program cannot be read: {error}") from None
    if not mutants:
        raise click.ClickException(f"nothing in {program} can be mutated: it has no collective that could go wrong")
    if listed:
        for mutant in mutants:
            click.echo(f"{mutant.place}: {mutant.operator}\n  - {mutant.before}\n  + {mutant.after}")
        return ExitCode.CLEAN
    from .judge import Judged, Tally
    from .measure import Bench, Unfit, judge_all
    from .report import to_json, to_text

    judged: list[Judged] = []
    with progress(lambda: f"{len(judged)} of {len(mutants)} mutants judged", plain=form == "text"):
        try:
            bench = Bench.of(program, dict(mesh.axes), rtol=rtol)
        except Unfit as error:
            raise click.ClickException(f"{program} does not pass without a mistake: {error}") from None
        for one in judge_all(bench, mutants, jobs, reasons):
            judged.append(one)  # counted by the progress line
    click.echo(to_json(judged) if form == "json" else to_text(judged, everything=everything))
    return ExitCode.FINDINGS if Tally(judged).unexplained else ExitCode.CLEAN
