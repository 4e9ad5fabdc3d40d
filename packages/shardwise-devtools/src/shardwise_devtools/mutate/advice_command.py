"""``shardwise-devtools advice``: makes the fixes that findings in wrong programs offer, and looks at the numbers."""

from __future__ import annotations

import os
import random

import click

from shardwise.cli.runs.progress import progress
from shardwise.diagnostics.result import ExitCode


@click.command()
@click.argument("names", nargs=-1, metavar="[PROGRAM]...")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="N mutants by chance (default: all of them).")
@click.option("--seed", type=int, default=0, metavar="N", help="What the sample is drawn with.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, metavar="N", help="Mutants at a time.")
@click.option("--all", "everything", is_flag=True, help="Show every fix, not only those that hide a mistake.")
def advice(names: tuple[str, ...], sample: int | None, seed: int, jobs: int, everything: bool) -> ExitCode:
    """Make one mistake at a time in right programs, and one fix at a time that the checker then offers.

    PROGRAM is a name like tensor_parallel; none means all. Each mutant is
    checked with local and global types. After a fix it is checked again, and what is clean runs on the mesh and on one
    rank: if the numbers are wrong, the fix has hidden the mistake.

    Exit codes: 0 no fix hides a mistake, 1 some do, 2 wrong usage or a program that does not pass without a mistake.
    """
    from .advice import After, Tried, summary, told, try_all
    from .corpus import corpus
    from .measure import Bench, Unfit

    entries = list(corpus())
    if unknown := [name for name in names if not any(name == one.name for one in entries)]:
        raise click.UsageError(f"there is no program {unknown[0]}; there are {', '.join(map(str, entries))}")
    named = [one for one in entries if not names or one.name in names]
    wanted = [one for one in named if one.mutants]
    mutants = [(number, mutant) for number, entry in enumerate(wanted) for mutant in entry.mutants]
    if sample is not None and sample < len(mutants):
        mutants = sorted(random.Random(seed).sample(mutants, sample), key=mutants.index)
    done: list[list[Tried]] = []
    with progress(lambda: f"{len(done)} of {len(mutants)} mutants tried", plain=True):
        try:
            benches = [Bench.of(entry.program, entry.mesh) for entry in wanted]
        except Unfit as error:
            raise click.ClickException(f"a program does not pass without a mistake: {error}") from None
        for tried in try_all(benches, mutants, jobs):
            done.append(tried)
            for one in tried:
                if everything or one.after is After.WRONG:
                    click.echo(told(one) + "\n")
    every = [one for tried in done for one in tried]
    click.echo(summary(len(mutants), every))
    return ExitCode.FINDINGS if any(one.after is After.WRONG for one in every) else ExitCode.CLEAN
