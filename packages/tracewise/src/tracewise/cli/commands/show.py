"""`tracewise show`: a run, a compilation or one of its texts in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tracewise.cli.inputs import opened_run, parse_ranks
from tracewise.find.answers import Answers, find_answers
from tracewise.model.entities import Compilation, Run
from tracewise.model.ids import CompileId, parse_compile_id
from tracewise.model.payloads import Payloads
from tracewise.read.archive import InputError
from tracewise.read.json_text import to_json

# Names that are short for what one looks for most.
SHORT_NAMES = {
    "output_code": "inductor_output_code",
    "graph": "dynamo_output_graph",
    "joint": "aot_joint_graph",
    "forward": "aot_forward_graph",
    "backward": "aot_backward_graph",
    "post_grad": "inductor_post_grad_graph",
    "guards": "dynamo_cpp_guards_str",
}


@click.command()
@click.argument("path")
@click.argument("id", required=False)
@click.option("--artifact", metavar="NAME", help="Print this text of the compilation, e.g. output_code or graph.")
@click.option("--rank", metavar="N", help="The compilation of this rank; the lowest that has it by default.")
@click.option("--run", "run_number", type=int, metavar="N", help="This run of several; the newest is default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    path: str, id: str | None, artifact: str | None, rank: str | None, run_number: int | None, as_json: bool
) -> None:
    """Show a run, a compilation (ID as in '[0/2]') or one of its texts."""
    if id is None and artifact is not None:
        raise click.UsageError("--artifact needs the ID of a compilation, such as '[0/0]'")
    with opened_run((path,), run_number) as run:
        if id is None:
            answers = find_answers(run)
            click.echo(to_json(answers.as_json()) if as_json else "\n".join(overview_lines(answers)))
            return
        unit = find_compilation(run, id, rank)
        if artifact is not None:
            _print_artifact(run, unit, artifact)
        else:
            click.echo(to_json(details(run, unit)) if as_json else "\n".join(detail_lines(unit)))


def overview_lines(answers: Answers) -> Iterator[str]:
    """The overview of a run as text."""
    run = answers.run
    version = run.torch_version or "of unknown version"
    yield f"{run.folder}: torch {version}, {len(run.files)} files, {run.size / 1e6:.1f} MB"
    yield (
        f"{answers.functions} functions compiled {len(run.compilations)} times in {answers.compile_us / 1e6:.1f} s"
        + (f" on {len(run.ranks)} ranks" if run.is_distributed else "")
        + f"; {len(answers.problems)} problems; {answers.recompilations} recompilations"
        + (f"; {answers.unfinished} never finished" if answers.unfinished else "")
    )
    damage = run.health.damage
    if damage:
        yield "not understood: " + ", ".join(f"{name} {count}" for name, count in sorted(damage.items()))
    if answers.export:
        yield f"export: {answers.export.verdict}" + "".join(f"\n  {reason}" for reason in answers.export.reasons)
    for problem in answers.problems:
        yield ""
        yield f"{problem.severity} {problem.id}: {problem.headline}"
        if problem.site:
            yield f"  {problem.site.place}  {problem.site.text}".rstrip()
        yield from (f"  help: {hint}" for hint in problem.hints[:2])
    yield ""
    for unit in run.compilations:
        site = unit.site
        seconds_text = "" if unit.duration_us is None else f"{unit.duration_us / 1e6:9.3f} s"
        rank = "" if unit.rank is None else f"rank {unit.rank}  "
        yield f"{rank}{unit.id!s:10} {unit.status:10} {seconds_text:>11}  {unit.function}  {site.place if site else ''}"
        if unit.recompile_reasons:
            yield f"{'':22} because {unit.recompile_reasons[0].splitlines()[0]}"


def find_compilation(run: Run, text: str, rank: str | None) -> Compilation:
    """The compilation that an id names. InputError with the known ids if there is none."""
    id = parse_compile_id(text)
    wanted = parse_ranks(rank) if rank else None
    if id is None:
        raise InputError(f"{text!r} is no compile id; write it as '[0/0]' or 0/2")
    for unit in run.compilations:
        if unit.id == id.compilation and (wanted is None or unit.rank in wanted):
            return unit
    if id == CompileId() and run.ranks:
        return run.ranks[0].outside
    known = sorted({str(unit.id) for unit in run.compilations})
    raise InputError(f"no compilation {text} in this run; there are {', '.join(known[:40]) or 'none'}")


def details(run: Run, unit: Compilation) -> dict[str, Any]:
    """What is known of one compilation."""
    return {
        **_row(unit),
        "stack": [frame._asdict() for frame in unit.stack],
        "metrics": unit.metrics,
        "artifacts": [
            {"name": record.title, "attempt": record.id.attempt, "bytes": record.payload_length, "line": record.line}
            for record in unit.records
        ],
    }


def detail_lines(unit: Compilation) -> Iterator[str]:
    """What is known of one compilation as text."""
    site = unit.site
    yield f"{unit.id} {unit.function}  {site.place if site else ''}  {unit.status}"
    if unit.duration_us is not None:
        yield f"compiled in {unit.duration_us / 1e6:.3f} s, {len(unit.attempts)} attempts"
    for reason in unit.recompile_reasons[:1]:
        yield f"recompiled because {reason}"
    for text in unit.breaks:
        yield ""
        yield text.text
    yield ""
    yield "stack, innermost last:"
    yield from (f"  {frame.place} in {frame.function}  {frame.text}".rstrip() for frame in unit.stack)
    yield ""
    yield "texts (print one with --artifact NAME):"
    for record in unit.records:
        if record.has_payload:
            yield f"  {record.payload_length:>9} bytes  attempt {record.id.attempt}  {record.title}"


def _print_artifact(run: Run, unit: Compilation, name: str) -> None:
    wanted = SHORT_NAMES.get(name, name)
    found = [record for record in unit.records if wanted in (record.title, record.kind) and record.has_payload]
    if not found:
        known = sorted({record.title for record in unit.records if record.has_payload})
        raise InputError(f"{unit.id} has no text {name!r}; it has {', '.join(known)}")
    with Payloads(run) as payloads:
        for record in found:
            if len(found) > 1:
                click.echo(f"# {record.title}, attempt {record.id.attempt}, line {record.line} of the log")
            click.echo(payloads.text(record))


def _row(unit: Compilation) -> dict[str, Any]:
    site = unit.site
    return {
        "id": str(unit.id),
        "rank": unit.rank,
        "function": unit.function,
        "site": site.place if site else None,
        "status": unit.status,
        "duration_us": unit.duration_us,
        "attempts": len(unit.attempts),
        "recompile_reasons": unit.recompile_reasons,
        "caches": [{"cache": event.cache, "state": event.state} for event in unit.caches],
    }
