"""``shardwise-devtools crashes``: tries every operator with any placements and arguments, and prints the crashes."""

from __future__ import annotations

import fnmatch

import click
import torch

from shardwise.diagnostics.result import ExitCode

from .apart import BROKEN, GivenUp, run_apart
from .crash_search import TIMEOUT_S, Search, limit_memory, names_of, search


@click.command()
@click.option("--ops", "pattern", metavar="PATTERN", default="*", help='Only these operators, e.g. "linalg.*".')
@click.option("--tries", type=click.IntRange(min=1), default=40, metavar="N", help="Calls of each operator.")
@click.option("--seed", type=int, default=0, metavar="N", help="What types and arguments are drawn from.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, metavar="N", help="Processes at a time.")
def crashes(pattern: str, tries: int, seed: int, jobs: int) -> ExitCode:
    """Look for errors of the checker's own, over PyTorch's op database with placements and arguments by chance.

    Exit codes: 0 fine, 1 a crash, 2 wrong usage.
    """
    names = names_of(lambda name: fnmatch.fnmatchcase(name, pattern) or name.split(" (")[0] == pattern)
    if not names:
        raise click.UsageError(f"no operator of the database matches {pattern!r}")

    def run(name: str) -> Search:
        torch.set_num_threads(1)
        limit_memory()
        return search(name, tries, seed)

    tried, found, broken, given_up = 0, 0, 0, []
    for name, one in zip(names, run_apart(run, names, jobs=jobs, timeout_s=TIMEOUT_S), strict=True):
        if isinstance(one, GivenUp):
            broken += one.reason.startswith(BROKEN)
            given_up.append(f"{name}: {one.reason}")
            continue
        tried += one.tries
        found += len(one.crashes)
        for crash in one.crashes:
            click.echo(str(crash))
    if broken:
        raise click.ClickException(
            f"{broken} of {len(names)} operators could not be tried:\n  " + "\n  ".join(given_up)
        )
    for line in given_up:
        click.echo(f"given up: {line}", err=True)
    click.echo(f"{found} crashes in {tried} calls of {len(names) - len(given_up)} operators, seed {seed}")
    return ExitCode.FINDINGS if found else ExitCode.CLEAN
