"""`tracewise diff`: what changed from one run to another, and a status for CI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from tracewise.cli.inputs import opened_run
from tracewise.cli.main import DONE, FOUND
from tracewise.compare.differences import RunDiff, TextChange, compare_runs
from tracewise.model.entities import Compilation
from tracewise.read.json_text import to_json
from tracewise.report.diff_page import write_diff
from tracewise.report.folder import check_target
from tracewise.report.html import duration

SLOWER = re.compile(r"^slower=(\d+(?:\.\d+)?)%$")
CONDITIONS = "new-problems, recompiles, slower=20%"
DIFF_LINES = 12


@click.command()
@click.argument("before")
@click.argument("after")
@click.option("-o", "--output", metavar="OUT", help="Write a page of the differences to this folder.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if tracewise wrote it.")
@click.option("--fail-on", "conditions", metavar="LIST", default="", help=f"End with status 1 for any of {CONDITIONS}.")
@click.option("--run-before", type=int, metavar="N", help="This run of several in BEFORE; the newest is default.")
@click.option("--run-after", type=int, metavar="N", help="This run of several in AFTER; the newest is default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    before: str,
    after: str,
    output: str | None,
    overwrite: bool,
    conditions: str,
    run_before: int | None,
    run_after: int | None,
    as_json: bool,
) -> int:
    """Compare two runs: problems, recompilations, compile time, graphs, code, caches, configuration."""
    wanted = parse_conditions(conditions)
    if output is not None:
        check_target(Path(output), overwrite)
    with opened_run((before,), run_before) as old, opened_run((after,), run_after) as new:
        diff = compare_runs(old, new)
    if output is not None:
        write_diff(diff, Path(output), overwrite=overwrite)
    click.echo(to_json(diff.as_json()) if as_json else "\n".join(lines(diff)))
    return FOUND if any(_holds(condition, diff) for condition in wanted) else DONE


def parse_conditions(text: str) -> list[str]:
    """The conditions of ``--fail-on``. A usage error for an unknown one."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if part not in ("new-problems", "recompiles") and not SLOWER.match(part):
            raise click.UsageError(f"--fail-on {part}: unknown; there are {CONDITIONS} (with any number)")
    return found


def _holds(condition: str, diff: RunDiff) -> bool:
    match = SLOWER.match(condition)
    if match:
        return diff.slower * 100 > float(match[1])
    return bool(diff.new_problems) if condition == "new-problems" else bool(diff.recompilations)


def lines(diff: RunDiff) -> Iterator[str]:
    """The differences as text, what is new first."""
    before, after = diff.before, diff.after
    yield f"before: {before.run.folder}, compiled {len(before.run.compilations)} times in {duration(before.compile_us)}"
    yield f"after:  {after.run.folder}, compiled {len(after.run.compilations)} times in {duration(after.compile_us)}"
    for answers in (before, after):
        damage = sum(answers.run.health.damage.values())
        if damage:
            yield f"not understood in {answers.run.folder}: {damage} records or lines; what they said is missing here"
    if diff.is_empty:
        yield "no difference"
        return
    for name, old, new in [*diff.facts, *diff.configs]:
        yield f"{name}: {old or 'unknown'} -> {new or 'unknown'}"
    for title, problems in (("new problem", diff.new_problems), ("gone problem", diff.gone_problems)):
        for problem in problems:
            place = f" ({problem.site.place})" if problem.site else ""
            yield f"{title}: {problem.title}: {problem.headline}{place}  {problem.id}"
    for item in diff.recompilations:
        yield f"recompiled: {item.function} ({item.place}) {item.after} times, {item.before} before: " + "; ".join(
            item.guards[:3]
        )
    for change in diff.times:
        sign = "+" if change.change_us > 0 else "-"
        yield (
            f"time: {change.what} {change.name}: {duration(change.before_us)} -> {duration(change.after_us)} "
            f"({sign}{duration(abs(change.change_us))})"
        )
    for cache in diff.caches:
        why = f"; differs in {', '.join(cache.components[:5])}" if cache.components else ""
        yield f"cache: {cache.cache} of {_named(cache.unit)}: {cache.before} -> {cache.after}{why}"
    for title, units in (("new compilation", diff.new), ("gone compilation", diff.gone)):
        yield from (f"{title}: {_named(unit)}" for unit in units)
    for text in diff.texts:
        yield from _text_lines(text)


def _text_lines(text: TextChange) -> Iterator[str]:
    yield f"{text.title} of {_named(text.after)} changed:"
    yield from (f"    {line}" for line in text.lines[:DIFF_LINES])
    if len(text.lines) > DIFF_LINES:
        yield f"    ... {len(text.lines) - DIFF_LINES} more lines: --json or -o"


def _named(unit: Compilation) -> str:
    rank = "" if unit.rank is None else f", rank {unit.rank}"
    return f"{unit.id} {unit.function or 'unnamed'}{f' ({unit.site.place})' if unit.site else ''}{rank}"
