"""``shardwise-devtools sweep``: runs the sweep, prints its figures, and writes the report to docs/."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

from shardwise.diagnostics.result import ExitCode
from shardwise.interop.torch_compat import op_database

from .apart import BROKEN
from .checker_answers import rulesets
from .coverage_page import summary
from .fingerprint import fingerprint
from .known_gaps import NO_RULE, reason_for
from .samples import full_name
from .tallies import Tally, tallies_of

DATA = Path("docs/coverage.json")


@click.command()
@click.option("--write", is_flag=True, help="Write docs/coverage.json here, of which the page is made.")
@click.option("--ops", "pattern", metavar="PATTERN", help='Only these operators, e.g. "linalg.*".')
@click.option("--jobs", type=click.IntRange(min=1), default=2, metavar="N", help="Processes at a time.")
def sweep(pattern: str | None, jobs: int, write: bool) -> ExitCode:
    """Hold the op rules, and DTensor's beside them, against the numbers, over PyTorch's op database.

    Exit codes: 0 fine, 1 a claim that the numbers refute, 2 wrong usage.
    """
    if write and pattern is not None:
        raise click.UsageError("--write needs the whole sweep: leave out --ops")
    if write and not DATA.parent.is_dir():
        raise click.UsageError("--write needs a folder docs/ here")
    names = _names(pattern)
    started = time.monotonic()
    rules = fingerprint()  # of the rules that are loaded now, whatever is edited meanwhile
    done = 0

    def progress(tally: Tally) -> None:
        nonlocal done
        done += 1
        line = f"{done}/{len(names)} {tally.name}"
        if sys.stderr.isatty():
            click.echo(f"\r{line:<78.78}", nl=done == len(names), err=True)
        elif done % 50 == 0 or done == len(names):
            click.echo(line, err=True)

    tallies = tallies_of(names, rulesets, jobs=jobs, progress=progress)
    broken = [tally for tally in tallies if tally.skipped.startswith(BROKEN)]
    if len(broken) > max(5, len(tallies) // 50):
        raise click.ClickException(f"{len(broken)} of {len(tallies)} operators could not be tried: {broken[0].skipped}")
    data = to_data(tallies, rules)
    click.echo(f"swept in {time.monotonic() - started:.0f} s", err=True)
    if write:
        DATA.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
        click.echo(f"wrote {DATA}", err=True)
    click.echo(summary(data))
    lies = [(op["name"], lie) for op in data["ops"] for lie in op["wrong"]]
    for name, lie in lies:
        click.echo(f"wrong ({lie['ruleset']}): {name}({lie['call']}): {lie['fact']}: {lie['reason']}")
    return ExitCode.FINDINGS if lies else ExitCode.CLEAN


def _names(pattern: str | None) -> list[str]:
    try:
        known = [full_name(op) for op in op_database()]
    except ImportError as error:
        raise click.UsageError(
            f"PyTorch's op database cannot be loaded ({error}); try pip install expecttest"
        ) from None
    if pattern is None:
        return known
    names = [name for name in known if fnmatch.fnmatchcase(name, pattern) or name.split(" (")[0] == pattern]
    if not names:
        raise click.UsageError(f"no operator of the database matches {pattern!r}")
    return names


def to_data(tallies: Sequence[Tally], rules: str) -> dict[str, Any]:
    """Everything the report says, as plain data; ``rules``: the fingerprint of the rules."""
    return {
        "schema": 1,
        "fingerprint": rules,
        "torch": torch.__version__.split("+")[0],
        "ops": [_entry(tally) for tally in tallies],
    }


def _entry(tally: Tally) -> dict[str, object]:
    ours = [note for note in tally.missing if note.ruleset != "foreign"]
    foreign = [note for note in tally.wrong if note.ruleset == "foreign"]
    gaps: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], str] = {}
    for note in ours:
        code = note.reason.split(":")[0]
        key = (note.ruleset, code, reason_for(note.ruleset, tally.name, code))
        gaps[key] += 1
        examples.setdefault(key, f"{note.call}: {note.fact}")
    return {
        "name": tally.name,
        "rule": tally.rule or None,
        "no_rule": NO_RULE.get(tally.name) if not tally.rule else None,
        "skipped": tally.skipped or None,
        "cases": tally.cases,
        "covered": tally.covered,
        "even": tally.even,
        "missing": [
            {
                "ruleset": ruleset,
                "code": code,
                "reason": reason or None,
                "count": count,
                "example": examples[ruleset, code, reason],
            }
            for (ruleset, code, reason), count in gaps.items()
        ],
        "wrong": [dataclasses.asdict(note) for note in tally.wrong if note.ruleset != "foreign"],
        "foreign": {
            "missing": sum(note.ruleset == "foreign" for note in tally.missing),
            "wrong": len(foreign),
            "example": f"{foreign[0].call}: {foreign[0].fact}" if foreign else None,
        },
    }
