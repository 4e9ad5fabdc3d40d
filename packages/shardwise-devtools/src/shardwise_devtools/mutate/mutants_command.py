"""``shardwise-devtools mutants``: every mistake in every right program, and the page of the docs that counts them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.cli.runs.progress import progress
from shardwise.diagnostics.result import ExitCode

if TYPE_CHECKING:
    from .corpus import RightProgram
    from .explained import Explained
    from .judge import Judged

EXPLAINED = Path(__file__).with_name("explained.toml")


@click.command()
@click.argument("names", nargs=-1, metavar="[PROGRAM]...")
@click.option("--write", is_flag=True, help="Renew docs/mutants.json and docs/mutants.md, for the programs that ran.")
@click.option("--check", is_flag=True, help="Fail if docs/mutants.json says something else of the programs that ran.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, metavar="N", help="Mutants at a time.")
def mutants(names: tuple[str, ...], write: bool, check: bool, jobs: int) -> ExitCode:
    """Make one mistake at a time in the programs of the zoo and in examples/gpt, and count who notices.

    PROGRAM is a name like tensor_parallel; none means all. Each is judged as by shardwise mutate. Verdicts are kept
    under build/mutants as they come, and a run that was cut off goes on where it was: until the program or shardwise
    changes. With --write the figures are renewed after every program.

    Exit codes: 0 no survivor and no false alarm that is not explained, 1 some are, or --check finds the docs out of
    date, 2 wrong usage or a program that does not pass without a mistake.
    """
    from .corpus import corpus
    from .explained import read_explained
    from .figures import DATA, PAGE, Figures, figures_of, page, read_figures, unmeasured, written
    from .judge import Tally
    from .measure import Unfit
    from .report import summary, to_text

    every = {one.name: one for one in corpus()}
    if unknown := [name for name in names if name not in every]:
        raise click.UsageError(f"there is no program {unknown[0]}; there are {', '.join(every)}")
    explained = read_explained(EXPLAINED)
    known = read_figures()
    found: dict[str, Figures] = {}
    for name in names or every:
        subject = every[name]
        judged: list[Judged] = []
        with progress(partial(_progress, name, judged, len(subject.mutants)), plain=True):
            try:
                judged += _judged(subject, jobs, explained)
            except Unfit as error:
                raise click.ClickException(f"{name} does not pass without a mistake: {error}") from None
        found[name] = figures_of(judged)
        click.echo(f"{name}: {summary(Tally(judged))}")
        if found[name].unexplained:
            click.echo(to_text(judged))
        if write:
            known = {one: {**known, **found}[one] for one in every if one in {**known, **found}}
            DATA.write_text(written(known))
            PAGE.write_text(page(known, unmeasured(known, every.values())))
    stale = [name for name in found if check and known.get(name) != found[name]]
    if stale:
        click.echo(f"docs/mutants.json says something else of {', '.join(stale)}: shardwise-devtools mutants --write")
    return ExitCode.FINDINGS if stale or any(one.unexplained for one in found.values()) else ExitCode.CLEAN


def _judged(subject: RightProgram, jobs: int, explained: tuple[Explained, ...]) -> Iterator[Judged]:
    """The mutants of a program, in their order; those that have a verdict are not run again. Errors: Unfit."""
    from .explained import reason_for
    from .judge import Judged
    from .kept import KeptVerdicts
    from .measure import Bench, verdicts

    kept = KeptVerdicts.of(subject)
    todo = [mutant for mutant in subject.mutants if mutant not in kept]
    coming = verdicts(Bench.of(subject.program, subject.mesh), todo, jobs) if todo else iter(())
    for mutant in subject.mutants:
        if mutant not in kept:
            kept.keep(mutant, next(coming))
        yield Judged(mutant, *kept[mutant], reason_for(mutant, explained))


def _progress(name: str, judged: Sized, count: int) -> str:
    return f"{name}: {len(judged)} of {count} mutants judged"
