"""``shardwise-devtools fixes``: which wrong programs have fixes that leave the types clean and the numbers right."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from shardwise.diagnostics.result import ExitCode

KINDS = ("bugs", "wrong", "unannotated")


@click.command()
@click.argument("names", nargs=-1, metavar="[PROGRAM]...")
@click.option("--kind", type=click.Choice(KINDS), multiple=True, default=("bugs", "wrong"), help="Which programs.")
@click.option("--diff", is_flag=True, help="Show what the best combination of fixes changes.")
def fixes(names: tuple[str, ...], kind: tuple[str, ...], diff: bool) -> ExitCode:
    """Try the fixes of every finding in wrong programs, in combinations, as --fix does.

    PROGRAM is a part of a name, like bugs/wrong-axis; none means all. What is clean after its fixes is verified: run on
    the mesh and on one rank.

    Exit codes: 0 no combination is clean and wrong, 1 some are, 2 wrong usage.
    """
    from .subjects import bugs, unannotated, wrong_programs
    from .trying import Tried, summary, try_fixes

    done: list[Tried] = []
    with tempfile.TemporaryDirectory(prefix="shardwise-") as folder:
        subjects = [
            *(bugs(Path(folder)) if "bugs" in kind else ()),
            *(wrong_programs() if "wrong" in kind else ()),
            *(unannotated(Path(folder)) if "unannotated" in kind else ()),
        ]
        wanted = [one for one in subjects if not names or any(name in one.name for name in names)]
        if not wanted:
            raise click.UsageError(f"no program is called like {', '.join(names)}")
        for subject in wanted:
            one = try_fixes(subject, lambda _: None)
            done.append(one)
            click.echo(f"{one.came.value:28} {one.name}  {' '.join(one.codes)}  ({one.tried} tried)")
            if one.unfixed:
                click.echo(f"    without a structured fix: {' '.join(one.unfixed)}")
            for helps in one.hides:
                click.echo(f"    clean and wrong: {'; '.join(helps)}")
            if diff and one.diff:
                click.echo(one.diff)
    click.echo(summary(done))
    return ExitCode.FINDINGS if any(one.hides for one in done) else ExitCode.CLEAN
