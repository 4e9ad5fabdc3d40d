"""``shardwise verify``: does this program compute on a mesh what it computes on one rank? Runs it on both.

The report goes to stdout; progress and what rank 0 prints go to stderr.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import click

from shardwise.diagnostics.result import ExitCode
from shardwise.host.launcher import launched_rank
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape

from .options.configured import ConfiguredCommand, configured, policy_options, written
from .options.declarations import declarations_of
from .options.link_options import configured_links
from .options.mesh_option import MeshParam, require_processes
from .options.module_option import ModuleParam
from .options.output_file import ARCHIVE, PAGE, require_writable
from .options.shared_options import color_option, timeout_option, type_options
from .runs.progress import progress
from .runs.shown_run import html_option, require_template, write_html

if TYPE_CHECKING:
    from shardwise.verifier.records.options import VerifyOptions
    from shardwise.verifier.records.subject import Subject
    from shardwise.verifier.text import Verdict

EPILOG = """\b
Examples:
  shardwise verify train.py --mesh dp=2,tp=2 -- --dp {dp} --tp {tp} --steps 2
  shardwise verify model.py:forward --mesh tp=4 --double
  shardwise verify -m mypackage.train --mesh dp=2 --format json
  torchrun --nproc-per-node 4 -m shardwise verify train.py
"""


@click.command(cls=ConfiguredCommand, epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="SCRIPT|FILE:FUNCTION [-- ARGS]")
@click.option(
    "-m",
    "module",
    type=ModuleParam(),
    metavar="MODULE",
    help="Verify a module, as python -m runs it, instead of a script.",
)
@click.option(
    "--mesh",
    type=MeshParam(),
    metavar="AXES",
    help="Axes and sizes, outermost first, e.g. dp=2,tp=2; one process for each rank is started. "
    "They are the current mesh until the program makes its own. On launched ranks it may be left out.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Only run on one rank, and write what it computes into FILE, for --references.",
)
@click.option(
    "--references",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Compare with the run on one rank that --record has written into FILE; it is not run again.",
)
@click.option(
    "--against",
    metavar="FILE:FUNCTION",
    help="Compare with what this single-device function computes, in place of the program's own run on one rank: it "
    "takes nothing or the initial parameters by name, and the two are aligned by parameter names.",
)
@click.option(
    "--feed/--no-feed",
    default=None,
    help="Give DataLoaders of the run on one rank the batches that all ranks draw together, for programs whose ranks "
    "draw batches of their own: by a sampler, or by seeds (default: where the two runs see other data otherwise).",
)
@click.option("--layouts", is_flag=True, hidden=True)
@type_options
@click.option(
    "--every", is_flag=True, help="Compare the result of every operation that has a type, not only what is declared."
)
@click.option("--double", is_flag=True, help="Make float64 the default dtype, so that rounding hides nothing.")
@click.option(
    "--rtol",
    type=click.FloatRange(min=0.0),
    metavar="R",
    help="How far values may be apart, relative to the largest of the tensor "
    "(default: 1e-9 for float64, 1e-4 for float32; measured for bfloat16 and float16).",
)
@timeout_option
@policy_options
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the report (default: text)."
)
@html_option
@color_option
@click.option("--allow-inconclusive", is_flag=True, help="End with 0 where the verdict is inconclusive.")
@click.option("--all", "everything", is_flag=True, help="Lift the limits on what is printed.")
@click.pass_context
def verify(
    context: click.Context,
    words: tuple[str, ...],
    module: str | None,
    mesh: MeshShape | None,
    record: str | None,
    references: str | None,
    against: str | None,
    feed: bool | None,
    layouts: bool,
    strict: bool,
    local: bool,
    partials: Literal["infer", "explicit"],
    every: bool,
    double: bool,
    rtol: float | None,
    timeout_s: float,
    form: Literal["text", "json"],
    html: str | None,
    color: Literal["auto", "always", "never"],
    allow_inconclusive: bool,
    everything: bool,
) -> ExitCode:
    """Verify a program: run it on every rank of a mesh and on one rank, and compare the numbers.

    Compared are losses, every parameter's gradient as it enters the optimizer, parameters after the last step, what
    assert_type declares and what checkpoint_value names. No annotation is needed: where nothing says how the ranks'
    tensors combine, every way in which they could is tried. In the script's arguments {dp} is the size of axis dp, and
    {world_size} the number of ranks; both are 1 in the run on one rank. The types are checked in the same runs.

    Started by torchrun, or a launcher like it, the command uses its ranks, devices and back end; rank 0 prints.

    Exit codes: 0 both verdicts are clean, 1 findings of either, 2 no verdict (wrong usage, a rank failed or hung,
    nothing was compared), 3 inconclusive (losses or gradients were not compared, or the two runs do different work).
    """
    if module is None and not words:
        raise click.UsageError("say what to verify: shardwise verify SCRIPT --mesh dp=2,tp=2")
    from shardwise.verifier.records.subject import Script, subject_named

    subject: Subject
    chosen = configured(context)
    before = declarations_of(chosen.settings)
    subject = Script(Program(module=module, arguments=words)) if module else subject_named(words[0], words[1:])
    subject = subject if before is None else subject.declared(before)
    from shardwise.verifier.records.options import VerifyOptions

    if record is not None:
        if references is not None:
            raise click.UsageError("--record writes references and --references reads them: leave one of them out")
        require_writable("--record", record, ARCHIVE)
        options = VerifyOptions(strict, local, partials, double, rtol, timeout_s, every, layouts=layouts)
        return _record(record, subject, mesh, options)

    require_writable("--html", html, PAGE)
    if html is not None:
        require_template()

    def report(verdict: Verdict) -> ExitCode:
        if chosen.writes is not None and verdict.failure is None:
            click.echo(f"shardwise: {written(chosen, verdict.types)}", err=True)
        policy = replace(chosen.policy, baseline=chosen.writes or chosen.policy.baseline)
        types = policy.applied(verdict.types, strict=strict, local=local, judges_comments=False)
        verdict = replace(verdict, types=types)
        if html is not None:
            from shardwise.verifier.report_sections import numbers_section

            write_html(html, verdict.types, numbers=numbers_section(verdict))
        if form == "json":
            from shardwise.verifier.formats import to_json

            click.echo(to_json(verdict))
        else:
            click.echo(_text(verdict, color, everything), color=True)
        return _exit_code(verdict.exit_code, allow_inconclusive)

    options = VerifyOptions(
        strict, local, partials, double, rtol, timeout_s, every, show=True, record=html is not None, feed=feed,
        links=configured_links(chosen.settings),
    )  # fmt: skip
    me = launched_rank(alone=mesh is None or mesh.ranks == 1)
    if against is not None and (me is not None or references is not None):
        raise click.UsageError(
            "--against runs on this machine: on launched ranks, and with --references, record the reference instead: "
            f"shardwise verify --record FILE {against}"
        )
    if feed and (me is not None or references is not None):
        raise click.UsageError("--feed needs both runs on this machine: leave --references out, and start no launcher")
    if me is not None:
        from shardwise.verifier.launched import LaunchedRuns, verdict_on

        from .runs.launched import recording_words, run_launched

        flags = [flag for flag, given in (("--every", every), ("--double", double)) if given]
        recording = recording_words(words, module, mesh, flags)

        def told(runs: LaunchedRuns) -> int:
            return report(verdict_on(subject, options, runs))

        return ExitCode(run_launched(me, subject, options, mesh, references or "", recording, told))
    mesh = require_processes(mesh, "there is nothing to compare it with")
    from shardwise.verifier.records.reference import reference_named
    from shardwise.verifier.run import verify_subject

    doing = ["starting"]
    with progress(lambda: doing[0], plain=form == "text"):
        verdict = verify_subject(
            subject,
            dict(mesh.axes),
            options,
            references=references or "",
            against=None if against is None else reference_named(against),
            stage=lambda text: doing.__setitem__(0, text),
        )
    return report(verdict)


def _record(file: str, subject: Subject, mesh: MeshShape | None, options: VerifyOptions) -> ExitCode:
    """Run on one rank and write the references."""
    from shardwise.verifier.run import record_references

    with progress(lambda: "running on one rank", plain=True):
        failure, said = record_references(file, subject, dict.fromkeys(mesh.names if mesh else ("rank",), 1), options)
    click.echo(said)
    return ExitCode.BROKEN if failure else ExitCode.CLEAN


def _text(verdict: Verdict, color: str, everything: bool) -> str:
    from shardwise.diagnostics.finding import WIDTH
    from shardwise.diagnostics.printing.limits import DEFAULT, EVERYTHING
    from shardwise.verifier.text import render_verdict

    terminal = sys.stdout.isatty()
    coloured = color == "always" or (color == "auto" and terminal and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((WIDTH, 0)).columns if terminal else WIDTH
    limits = EVERYTHING if everything else DEFAULT
    return render_verdict(verdict, color=coloured, width=width, limits=limits)


def _exit_code(code: ExitCode, allow_inconclusive: bool) -> ExitCode:
    return ExitCode.CLEAN if code is ExitCode.INCONCLUSIVE and allow_inconclusive else code
