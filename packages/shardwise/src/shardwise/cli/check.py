"""``shardwise check``: what is wrong with this program? Reads the options, runs the program, prints the result.

The report goes to stdout; progress, complaints and everything that the program itself prints go to stderr.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import click

from shardwise.diagnostics.printing.limits import DEFAULT, EVERYTHING, LISTS, Limits
from shardwise.diagnostics.result import Collector, ExitCode, RunResult, StopReason
from shardwise.diagnostics.statistics import COUNTS
from shardwise.host.launcher import launched_rank
from shardwise.host.program import Program
from shardwise.mesh.shape import MOST_RANKS, MeshShape

from .options.configured import ConfiguredCommand, configured, policy_options, written
from .options.declarations import declarations_of
from .options.link_options import configured_links
from .options.mesh_option import MeshParam, world_size_of
from .options.module_option import ModuleParam
from .options.output_file import JSON, PAGE, require_writable, write_edits
from .options.ranks_option import MOST, RankChoice, RanksParam
from .options.shared_options import color_option, require_writer, type_options
from .runs.guard import OWN_PROCESS, Death, guarded
from .runs.shown_run import annotate_option, html_option, require_template, show_annotated, write_html
from .runs.watching import watch_option, watch_runs

if TYPE_CHECKING:
    from shardwise.uniformity.calls import Trace

    from .runs.fixing import Rerun

LAUNCHED_TIMEOUT_S = 3600.0
DEFAULT_WORLD_SIZE = 8
"""One host. Enough for a mesh of 2 x 4 and 2 x 2 x 2, and divisible by the usual sizes."""

EPILOG = """\b
Examples:
  shardwise check train.py --world-size 8
  shardwise check train.py --mesh dp=2,tp=4 -- --config small.toml
  shardwise check -m mypackage.train --fake --format json
  shardwise check train.py --mesh dp=2,tp=4 --ranks all
  torchrun --nproc-per-node 8 -m shardwise check train.py
"""


@click.command(cls=ConfiguredCommand, epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="SCRIPT [-- SCRIPT ARGS]")
@click.option(
    "-m",
    "module",
    type=ModuleParam(),
    metavar="MODULE",
    help="Check a module, as python -m runs it, instead of a script.",
)
@click.option(
    "--mesh",
    type=MeshParam(),
    metavar="AXES",
    help="Axes and sizes, outermost first, e.g. dp=2,tp=4. "
    "Their product is the world size, and they are the current mesh until the program makes its own.",
)
@click.option(
    "--world-size",
    type=click.IntRange(min=1, max=MOST_RANKS),
    metavar="N",
    help=f"Ranks in the imagined job (default: the product of --mesh, or {DEFAULT_WORLD_SIZE}).",
)
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="The rank that is run (default: 0).")
@click.option(
    "--ranks",
    type=RanksParam(),
    metavar="RANKS",
    help="Run several ranks and compare what they ask of each other: all, corners (the first and last of each mesh "
    "axis) or a list, e.g. 0,3,5-7.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --ranks: give up a rank after so long (default: when it takes ten times as long as the others).",
)
@click.option(
    "--schedule",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write what is issued, a line of JSON a collective: the plan that tracewise ranks lays beside a real run.",
)
@type_options
@click.option(
    "--observe/--no-observe",
    default=None,
    help="Whether wrappers and torch's own marks type what nobody has typed: DDP, FSDP, DTensor placements, samplers "
    "(default: yes, unless --strict asks for every type in the source).",
)
@click.option("--fake", is_flag=True, help="Use fake tensors: nothing is allocated and nothing computed.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "meta"]),
    default="cpu",
    help="Where tensors live, whatever device the program names (default: cpu).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github", "junit", "badge"]),
    default="text",
    help="Form of the report (sarif: for code-scanning services; github: annotations; junit: test results; "
    "badge: with --statistics).",
)
@color_option
@click.option(
    "--show",
    "lists",
    type=click.Choice(LISTS),
    multiple=True,
    help="Print the whole list of what the verdict rests on: trusted claims, lost types, or calls on tensors of the "
    "program that were not checked (may be given several times).",
)
@annotate_option
@policy_options
@click.option(
    "--statistics",
    is_flag=True,
    help="Print the number of findings per code, and none of them; with json, on one line.",
)
@html_option
@click.option("--diff", is_flag=True, help="Show what --fix would change.")
@click.option(
    "--fix",
    is_flag=True,
    help="Mend the program where that is proven: with the fixes the types are clean, and verify finds the numbers of "
    "one rank. What leaves a choice is left.",
)
@watch_option
@click.option("--trace", is_flag=True, help="Log each typed operation to stderr.")
@click.option("--all", "everything", is_flag=True, help="Lift the limits on what is printed.")
@click.pass_context
def check(
    context: click.Context,
    words: tuple[str, ...],
    module: str | None,
    mesh: MeshShape | None,
    world_size: int | None,
    rank: int | None,
    ranks: RankChoice | None,
    timeout_s: float | None,
    schedule: str | None,
    strict: bool,
    observe: bool | None,
    local: bool,
    partials: Literal["infer", "explicit"],
    fake: bool,
    device: str,
    form: Literal["text", "json", "sarif", "github", "junit", "badge"],
    color: Literal["auto", "always", "never"],
    lists: tuple[str, ...],
    annotate: bool,
    statistics: bool,
    html: str | None,
    diff: bool,
    fix: bool,
    watch: bool,
    trace: bool,
    everything: bool,
) -> ExitCode:
    """Check a training script: run one rank of it in an imagined job and report every independent mistake.

    Started by torchrun, the command checks every rank as it runs, on its own device; rank 0 prints.

    With --ranks several ranks are run, and what they ask of each other must match: a hang is found before it hangs.
    They are run without it too where one rank needs objects of others: of a pipeline's stages, or for a checkpoint.

    The script runs unchanged, as torchrun would start it, in one process and without a GPU. What it prints goes to
    stderr; the report goes to stdout.

    Types come from annotations, and from wrappers and marks (--observe); what has none is unknown and no error.

    Exit codes: 0 clean, 1 findings, 2 no verdict (wrong usage, the program crashed, nothing was checked), 3
    inconclusive (nothing was judged that depends on a parameter, or of what is exchanged over some axis).
    """
    if module is None and not words:
        raise click.UsageError("say which script to check: shardwise check SCRIPT")
    chosen = configured(context)
    before = declarations_of(chosen.settings)
    path, arguments = ("", words) if module else (words[0], words[1:])
    program = Program(path, module or "", arguments, before)
    me = launched_rank()
    size = me.size if me is not None else world_size_of(mesh, world_size, DEFAULT_WORLD_SIZE)
    if (diff or fix) and form != "text":
        raise click.UsageError(f"--{'fix' if fix else 'diff'} is for people: leave out --format {form}")
    if statistics and (diff or fix or form not in COUNTS):
        raise click.UsageError("--statistics counts, as text or with --format json or badge: leave the others out")
    if form == "badge" and not statistics:
        raise click.UsageError("a badge has only numbers: add --statistics")
    if diff or fix:
        require_writer("--diff and --fix")
    if html is not None:
        require_template()
    require_writable("--html", html, PAGE)
    require_writable("--schedule", schedule, JSON)
    chosen.policy.require()
    if rank is not None and rank >= size:
        raise click.UsageError(f"--rank {rank} is not in a world of {size}: ranks go from 0 to {size - 1}")
    if rank is not None and ranks is not None:
        raise click.UsageError(f"--rank {rank} runs one rank and --ranks several: leave one of them out")
    if timeout_s is not None and ranks is None and me is None:
        raise click.UsageError("--timeout is for ranks that are run side by side: add --ranks all")
    if ranks is not None:
        ranks.require(size)
    program.require()
    if me is not None and mesh is not None and mesh.ranks != me.size:
        raise click.UsageError(f"--mesh {mesh} has {mesh.arithmetic} ranks, and the launcher has started {me.size}")
    if watch:
        if fix or me is not None or context.find_root().obj is not OWN_PROCESS:
            raise click.UsageError("--watch is for a command of its own, without --fix and without a launcher")
        watch_runs(program)
    limits = EVERYTHING if everything else DEFAULT.without(lists)

    def judged(result: RunResult, traces: Sequence[Trace] = ()) -> RunResult:
        """What is to be reported of it, and it is."""
        if chosen.writes is not None and result.stopped is None:
            click.echo(f"shardwise: {written(chosen, result)}", err=True)
            result = replace(chosen.policy, baseline=chosen.writes).applied(result, strict=strict, local=local)
        else:
            result = chosen.policy.applied(result, strict=strict, local=local)
        if html is not None:
            result = write_html(html, result, traces, settings=chosen.settings)
        if annotate:
            show_annotated(result, form, color, everything)
        if statistics:
            click.echo(COUNTS[form](result))
        else:
            click.echo(_report(result, form, color, limits, chosen.settings.docs), color=True)
        return result

    death = guarded() if me is None and context.find_root().obj is OWN_PROCESS else None
    if death is not None:
        judged(_until(death, program, mesh, rank or 0))
        return ExitCode.BROKEN
    from shardwise.worlds.absent_objects import OtherRanksNeeded

    from .runs.run import CheckOptions, check_program

    options = CheckOptions(
        world_size=size,
        guessed=mesh is None and world_size is None and not (diff or fix),
        rank=rank or (0 if me is None else me.rank),
        mesh=mesh,
        strict=strict,
        observe=not strict if observe is None else observe,
        local=local,
        partials=partials,
        device=device,
        fake=fake,
        trace=trace,
        whole_traceback=everything,
        plain_progress=form == "text" and (me is None or me.rank == 0),
        launched=me,
        record=annotate or html is not None,
        links=configured_links(chosen.settings),
    )
    if me is not None:
        _refuse_imagined(world_size, rank, ranks, schedule, fake, device, diff, fix, annotate, html)
        from .runs.launched import check_launched

        return ExitCode(
            check_launched(me, program, options, timeout_s or LAUNCHED_TIMEOUT_S, lambda came: judged(came).exit_code)
        )
    traces: Sequence[Trace] = ()
    if ranks is not None:
        from .runs.ranks import check_ranks

        result, traces = check_ranks(program, options, ranks, timeout_s)
    else:
        try:
            if schedule is not None or html is not None:
                from .runs.schedule import check_recorded

                result, traces = check_recorded(program, options)
            else:
                result = check_program(program, options)
        except OtherRanksNeeded as needed:
            from .runs.ranks import check_ranks_afresh

            choice = RankChoice("all" if size <= MOST else "corners")
            click.echo(f"shardwise: {needed}, so this is --ranks {choice.word}", err=True)
            result, traces = check_ranks_afresh(program, options, choice)
    if schedule is not None:
        from .runs.schedule import write_schedule

        write_schedule(schedule, traces, result)
    result = judged(result, traces)
    if not diff and not fix:
        return result.exit_code
    typing = ["--strict" if strict else "--permissive", "--local" if local else "--global", "--partials", partials]
    typing += chosen.words
    more = ["--observe" if options.observe else "--no-observe", "--device", device, *(["--fake"] if fake else [])]
    from .runs.fixing import rerun_of

    return _fix(result, rerun_of(program, mesh, size, typing, more), fix)


def _fix(result: RunResult, rerun: Rerun, write: bool) -> ExitCode:
    """Try the fixes, say what came of it, and write what is proven if that is asked for."""
    from .runs.fix_search import search
    from .runs.fixing import ask, choices, told
    from .runs.progress import progress

    doing, tried = [""], []
    with progress(lambda: doing[0]):
        for trial in search(result, rerun, lambda text: doing.__setitem__(0, text)):
            tried.append(trial)
    proven = bool(tried) and tried[-1].is_proven
    if proven and write:
        write_edits(tried[-1].edits)
    if result.errors:
        click.echo()
        for line in told(result, tried, write, os.getcwd()):
            click.echo(line)
    offered = choices(tried) if write and not proven and sys.stdin.isatty() else []
    chosen = ask(offered) if offered else None
    if chosen is not None:
        write_edits(chosen.edits)
        for edit in chosen.edits:
            click.echo(edit.diff.rstrip("\n"))
        return ExitCode.INCONCLUSIVE
    return ExitCode.CLEAN if proven and write else result.exit_code


def _refuse_imagined(*given: object) -> None:
    """Options of imagined ranks, where a launcher has started real ones."""
    imagined = ("--world-size", "--rank", "--ranks", "--schedule", "--fake", "--device")
    names = (*imagined, "--diff", "--fix", "--annotate", "--html")
    unlike = [name for name, one in zip(names, given, strict=True) if one not in (None, False, "cpu")]
    if unlike:
        raise click.UsageError(
            f"{', '.join(unlike)} is for ranks that are imagined, and a launcher has started real ones"
        )


def _until(death: Death, program: Program, mesh: MeshShape | None, rank: int) -> RunResult:
    """What is known of a program that has taken its process with it."""
    collector = Collector(mesh="" if mesh is None else str(mesh), script=str(program), rank=rank)
    for finding in death.findings:
        collector.add(finding)
    collector.count_checked(death.checked)
    collector.stop(StopReason.SCRIPT_ERROR, f"nothing, but {death.how}")
    return collector.result()


def _report(result: RunResult, form: str, color: str, limits: Limits, docs: str) -> str:
    if form == "json":
        from shardwise.diagnostics.formats import to_json

        return to_json(result)
    if form == "sarif":
        from shardwise import __version__
        from shardwise.diagnostics.services.sarif import to_sarif

        from .runs.sarif_fixes import sarif_edits

        return to_sarif(result, version=__version__, edits=sarif_edits, docs=docs)
    if form == "junit":
        from shardwise.diagnostics.services.junit import to_junit

        return to_junit(result)
    if form == "github":
        from shardwise.diagnostics.services.annotations import to_github

        return to_github(result)
    from shardwise.diagnostics.finding import WIDTH
    from shardwise.diagnostics.text import render_result

    terminal = sys.stdout.isatty()
    coloured = color == "always" or (color == "auto" and terminal and not os.environ.get("NO_COLOR"))
    width = shutil.get_terminal_size((WIDTH, 0)).columns if terminal else WIDTH
    return render_result(result, color=coloured, width=width, limits=limits)
