"""``shardwise check``: what is wrong with this program? The options; ``runs/asked_check.py`` does what they ask.

The report goes to stdout; progress, complaints and everything that the program itself prints go to stderr.
"""

from __future__ import annotations

from typing import Any

import click

from shardwise.diagnostics.printing.limits import LISTS
from shardwise.diagnostics.result import ExitCode
from shardwise.mesh.shape import MOST_RANKS

from .options.configured import ConfiguredCommand, configured, policy_options
from .options.mesh_option import MeshParam
from .options.module_option import module_option
from .options.ranks_option import RanksParam
from .options.shared_options import FiniteRange, color_option, type_options
from .runs.asked_check import DEFAULT_WORLD_SIZE, AskedCheck
from .runs.guard import OWN_PROCESS
from .runs.shown_run import annotate_option, html_option
from .runs.watching import watch_option

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
@module_option("Check")
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
    type=FiniteRange(min=0, min_open=True),
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
def check(context: click.Context, /, **options: Any) -> ExitCode:
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
    root = context.find_root()
    asked = AskedCheck(configured=configured(context), own_process=root.obj is OWN_PROCESS, **options)
    if asked.starts_watching():
        root.command.main()  # in a fork for each run, which reads the settings as they are now
    return asked.run()
