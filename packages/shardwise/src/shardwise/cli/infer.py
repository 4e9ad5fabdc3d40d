"""``shardwise infer``: which types are true of a program's tensors? Runs it on a mesh and on one rank.

The report goes to stdout; progress and what rank 0 prints go to stderr.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import click

from shardwise.diagnostics.printing.printable import columns
from shardwise.diagnostics.result import ExitCode
from shardwise.host.launcher import launched_rank
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from .options.mesh_option import MeshParam, require_processes
from .options.module_option import module_option
from .options.output_file import write_edits
from .options.shared_options import require_writer, timeout_option
from .runs.infer_edits import edits_of
from .runs.progress import progress

if TYPE_CHECKING:
    from shardwise.verifier.annotating.inference import Inference, InferredType
    from shardwise.verifier.records.failure import Failure
    from shardwise.verifier.records.record import RankRun

    from .runs.infer_edits import Edits

SCHEMA = "shardwise.infer/1"
HEADINGS = {"parameter": "parameters", "buffer": "buffers", "input": "inputs", "module": "what modules give"}
EPILOG = """\b
Examples:
  shardwise infer train.py --mesh dp=2,tp=2
  shardwise infer train.py --mesh dp=2,tp=2 --write
  torchrun --nproc-per-node 4 -m shardwise infer train.py
  shardwise infer -m mypackage.train --mesh dp=2 --format json -- --steps 1
"""


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="SCRIPT|FILE:FUNCTION [-- ARGS]")
@module_option("Run")
@click.option(
    "--mesh",
    type=MeshParam(),
    metavar="AXES",
    help="Axes and sizes, outermost first, e.g. dp=2,tp=2; one process for each rank is started. On launched ranks it "
    "may be left out.",
)
@timeout_option
@click.option("--diff", "diff", is_flag=True, help="Show how the types would stand in the source; change nothing.")
@click.option("--write", "write", is_flag=True, help="Show that, and write them. Nothing else of a file changes.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the report (default: text)."
)
def infer(
    words: tuple[str, ...],
    module: str | None,
    mesh: MeshShape | None,
    timeout_s: float,
    diff: bool,
    write: bool,
    form: Literal["text", "json"],
) -> ExitCode:
    """Infer types: run a program on every rank of a mesh and on one rank, and say how its tensors lie.

    Shown are the parameters and buffers of the modules that are called, what these are called with, and what the
    modules in them give. A type is true of the values of the two runs, and is evidence, no promise. Started by
    torchrun, the command uses its ranks. In the script's arguments {dp} is the size of axis dp, and {world_size} the
    number of ranks; both are 1 in the run on one rank.

    With --write the types of parameters and inputs are put into the files of the program's own folder, as assert_type
    at the places from which they are reached; shardwise check then holds the program to them. Types that stand there
    already are kept, so that a second time changes nothing.

    Exit codes: 0 every tensor has a type, 2 no types (wrong usage, a rank failed or hung, there are no modules), 3 the
    values of some are explained by no type.
    """
    if module is None and not words:
        raise click.UsageError("say what to run: shardwise infer SCRIPT --mesh dp=2,tp=2")
    from shardwise.verifier.annotating.inference import Inference, inferred_types
    from shardwise.verifier.records.options import VerifyOptions
    from shardwise.verifier.records.subject import Script, Subject, project_of, subject_named

    if diff or write:
        require_writer("--diff and --write")

    subject: Subject
    subject = Script(Program(module=module, arguments=words)) if module else subject_named(words[0], words[1:])
    options = VerifyOptions(strict=False, timeout_s=timeout_s, layouts=True, show=True, project=project_of(subject))

    def report(runs: Sequence[RankRun], failure: Failure | None, axes: Mapping[str, int]) -> ExitCode:
        types = () if failure is not None else tuple(inferred_types(runs[:-1], runs[-1], axes))
        sites = [run.sites for run in runs[:-1]]
        names = sites[0].names if sites and failure is None else {}
        shown = ",".join(f"{name}={size}" for name, size in axes.items())
        renamed = tuple(one.renamed(names) for one in types)
        inference = Inference(str(subject), shown, math.prod(axes.values()), renamed, failure)
        edits = edits_of(types, sites) if (diff or write) and failure is None else None
        refused = None if edits is None or not write else _refusal(edits)
        written = write and refused is None
        if form == "json":
            told = {**_as_dict(inference), **({} if edits is None else edits.as_dict(written))}
            click.echo(json.dumps(told, indent=2))
        else:
            click.echo("\n".join([*_lines(inference), *(() if edits is None else edits.lines(written))]))
        if refused is not None:
            raise refused
        if edits is not None and written and edits.files and form == "text":
            click.echo(f"next: {_next_command(module, words, shown, types)}")
        if failure is not None or not types:
            return ExitCode.BROKEN
        return ExitCode.INCONCLUSIVE if inference.unexplained else ExitCode.CLEAN

    me = launched_rank(alone=mesh is None or mesh.ranks == 1)
    if me is not None:
        if (diff or write) and mesh is None:
            raise click.UsageError("on launched ranks --diff and --write need --mesh: axes are written by its names")
        from .runs.launched import recording_words, run_launched

        recording = recording_words(words, module, mesh, ["--layouts"])
        code = run_launched(
            me, subject, options, mesh, "", recording, lambda came: report(came.runs, came.failure, came.mesh)
        )
        return ExitCode(code)
    mesh = require_processes(mesh, "every type is true there")
    from shardwise.verifier.runs.processes import run_both

    doing = ["starting"]
    with progress(lambda: doing[0], plain=form == "text"):
        runs, failure = run_both(subject, dict(mesh.axes), options, stage=lambda text: doing.__setitem__(0, text))
    return report(runs, failure, dict(mesh.axes))


def _next_command(module: str | None, words: Sequence[str], mesh: str, types: Sequence[InferredType]) -> str:
    """The check of what is annotated now; pending sums over sharded dims are only seen with global types."""
    script, arguments = (["-m", module], words) if module else ([words[0]], words[1:])
    sharded = any(str(place).startswith("S(") for one in types for place in (one.axes or {}).values())
    options = ["--mesh", mesh, *(["--global"] if sharded else [])]
    return shlex.join(["shardwise", "check", *script, *options, *(["--", *arguments] if arguments else [])])


def _refusal(edits: Edits) -> click.UsageError | None:
    """Write the files; why that is not possible, if it is not."""
    try:
        write_edits(edits.files)
    except click.UsageError as refused:
        return refused
    return None


def _lines(inference: Inference) -> Iterator[str]:
    if inference.failure is not None:
        yield f"the run {inference.failure.where} did not come to its end: {inference.failure.text}"
        yield from (f"  {line}" for line in inference.failure.details.splitlines())
        return
    for kind, heading in HEADINGS.items():
        having = [one for one in inference.types if one.kind == kind]
        if having:
            yield f"{heading}:"
            yield from _table(having, inference.ranks)
            yield ""
    reasons: dict[str, dict[str, None]] = {}
    for one in inference.types:
        for axis, place in (one.axes or {}).items():
            reasons.setdefault(one.known_by[axis], {})[f"{axis}: {place}"] = None
    if reasons:
        yield "known by:"
        yield from (f"  {', '.join(places)}: {how}" for how, places in reasons.items())
        yield ""
    lost = inference.unexplained
    said = f"; no layout explains the values of {len(lost)}" if lost else ""
    yield f"{len(inference.types)} tensors on mesh {inference.mesh}{said}"
    if not inference.types:
        yield "no module with parameters was called"


def _table(types: list[InferredType], ranks: int) -> Iterator[str]:
    rows = [(_name(one, ranks), str(list(one.shape)), _written(one)) for one in types]
    yield from (f"  {row}" for row in columns(rows))


def _name(one: InferredType, ranks: int) -> str:
    where = "" if len(one.ranks) == ranks else f" on rank {', '.join(map(str, one.ranks))}"
    return f"{one.name}{where}" + ("" if one.there == one.name else f", which is {one.there}")


def _written(one: InferredType) -> str:
    if one.axes is None:
        return "no layout explains the values"
    if not one.axes:
        return "on this rank alone"
    return ", or ".join(_type(axes) for axes in (one.axes, *one.otherwise))


def _type(axes: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{axis}: {place}" for axis, place in axes.items()) + "}"


def _as_dict(inference: Inference) -> dict[str, object]:
    failure = inference.failure
    return {
        "schema": SCHEMA,
        "program": inference.program,
        "mesh": inference.mesh,
        "failure": None if failure is None else {"where": failure.where, "text": failure.text},
        "types": [
            {
                "kind": one.kind,
                "name": one.name,
                "ranks": list(one.ranks),
                "name_on_one_rank": one.there,
                "shape": list(one.shape),
                "type": None if one.axes is None else dict(one.axes),
                "known_by": dict(one.known_by),
                "otherwise": [dict(axes) for axes in one.otherwise],
            }
            for one in inference.types
        ],
    }
