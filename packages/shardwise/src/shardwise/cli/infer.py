"""``shardwise infer``: which types are true of a program's tensors? Runs it on a mesh and on one rank.

The report goes to stdout; progress and what rank 0 prints go to stderr.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from shardwise.diagnostics.result import ExitCode
from shardwise.host.launcher import launched_rank
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from .options.mesh_option import MeshParam, require_processes
from .options.module_option import module_option
from .options.output_file import write_edits
from .options.shared_options import require_writer, timeout_option
from .runs.infer_edits import edits_of
from .runs.infer_report import as_dict, lines_of
from .runs.progress import progress

if TYPE_CHECKING:
    from shardwise.verifier.annotating.inference import InferredType
    from shardwise.verifier.records.failure import Failure
    from shardwise.verifier.records.record import RankRun
    from shardwise.verifier.records.subject import Subject

    from .runs.infer_edits import Edits

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
    from shardwise.verifier.records.options import VerifyOptions
    from shardwise.verifier.records.subject import Script, project_of, subject_named

    if diff or write:
        require_writer("--diff and --write")

    subject: Subject
    subject = Script(Program(module=module, arguments=words)) if module else subject_named(words[0], words[1:])
    options = VerifyOptions(strict=False, timeout_s=timeout_s, layouts=True, show=True, project=project_of(subject))
    request = _Request(subject, module, words, edits=diff or write, write=write, form=form)

    me = launched_rank(alone=mesh is None or mesh.ranks == 1)
    if me is not None:
        if request.edits and mesh is None:
            raise click.UsageError("on launched ranks --diff and --write need --mesh: axes are written by its names")
        from .runs.launched import recording_words, run_launched

        recording = recording_words(words, module, mesh, ["--layouts"])
        code = run_launched(
            me, subject, options, mesh, "", recording, lambda came: request.tell(came.runs, came.failure, came.mesh)
        )
        return ExitCode(code)
    mesh = require_processes(mesh, "every type is true there")
    from shardwise.verifier.runs.processes import run_both

    doing = ["starting"]
    with progress(lambda: doing[0], plain=form == "text"):
        runs, failure = run_both(subject, dict(mesh.axes), options, stage=lambda text: doing.__setitem__(0, text))
    return request.tell(runs, failure, dict(mesh.axes))


@dataclass(frozen=True)
class _Request:
    """What was asked for: types of ``subject``, perhaps as ``edits`` of its source, perhaps written there."""

    subject: Subject
    module: str | None
    words: Sequence[str]
    edits: bool
    write: bool
    form: Literal["text", "json"]

    def tell(self, runs: Sequence[RankRun], failure: Failure | None, axes: Mapping[str, int]) -> ExitCode:
        """Print what the runs show, that on one rank the last of them, and write what is to be written."""
        from shardwise.verifier.annotating.inference import Inference, inferred_types

        types = () if failure is not None else tuple(inferred_types(runs[:-1], runs[-1], axes))
        sites = [run.sites for run in runs[:-1]]
        names = sites[0].names if sites and failure is None else {}
        mesh = ",".join(f"{name}={size}" for name, size in axes.items())
        renamed = tuple(one.renamed(names) for one in types)
        inference = Inference(str(self.subject), mesh, math.prod(axes.values()), renamed, failure)
        edits = edits_of(types, sites) if self.edits and failure is None else None
        refused = _refusal(edits) if edits is not None and self.write else None
        written = self.write and refused is None
        if self.form == "json":
            told = {**as_dict(inference), **({} if edits is None else edits.as_dict(written))}
            click.echo(json.dumps(told, indent=2))
        else:
            click.echo("\n".join([*lines_of(inference), *(() if edits is None else edits.lines(written))]))
        if refused is not None:
            raise refused
        if edits is not None and written and edits.files and self.form == "text":
            click.echo("\n".join(_next_commands(self.module, self.words, mesh, types)))
        if failure is not None or not types:
            return ExitCode.BROKEN
        return ExitCode.INCONCLUSIVE if inference.unexplained else ExitCode.CLEAN


def _next_commands(module: str | None, words: Sequence[str], mesh: str, types: Sequence[InferredType]) -> list[str]:
    """The check of what is annotated now; where dims are cut, global types see more, and refuse more."""
    script, arguments = (["-m", module], words) if module else ([words[0]], words[1:])

    def check(*options: str) -> str:
        after = ["--", *arguments] if arguments else []
        return shlex.join(["shardwise", "check", *script, "--mesh", mesh, *options, *after])

    sharded = any(str(place).startswith("S(") for one in types for place in (one.axes or {}).values())
    further = f"then: {check('--global')} also judges what operators do along dims that are cut"
    return [f"next: {check()}", *([further] if sharded else [])]


def _refusal(edits: Edits) -> click.UsageError | None:
    """Write the files; why that is not possible, if it is not."""
    try:
        write_edits(edits.files)
    except click.UsageError as refused:
        return refused
    return None
