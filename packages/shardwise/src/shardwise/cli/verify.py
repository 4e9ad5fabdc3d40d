"""``shardwise verify``: does this program compute on a mesh what it computes on one rank? The options; what they ask is
done by ``runs/asked_verify.py``.

The report goes to stdout; progress and what rank 0 prints go to stderr.
"""

from __future__ import annotations

from typing import Any

import click

from shardwise.diagnostics.result import ExitCode

from .options.configured import ConfiguredCommand, configured, policy_options
from .options.mesh_option import MeshParam
from .options.module_option import module_option
from .options.shared_options import FiniteRange, color_option, timeout_option, type_options
from .runs.asked_verify import AskedVerify
from .runs.guard import OWN_PROCESS
from .runs.shown_run import html_option

EPILOG = """\b
Examples:
  shardwise verify train.py --mesh dp=2,tp=2 -- --dp {dp} --tp {tp} --steps 2
  shardwise verify model.py:forward --mesh tp=4 --double
  shardwise verify -m mypackage.train --mesh dp=2 --format json
  torchrun --nproc-per-node 4 -m shardwise verify train.py
"""


@click.command(cls=ConfiguredCommand, epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="SCRIPT|FILE:FUNCTION [-- ARGS]")
@module_option("Verify")
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
    help="Give DataLoaders of the run on one rank the batches that all ranks draw together, and its random calls their "
    "numbers, for programs whose ranks draw their own: by a sampler, or by seeds (default: where the two runs part).",
)
@click.option("--layouts", is_flag=True, hidden=True)
@click.option("--drawn", hidden=True)
@type_options
@click.option(
    "--every", is_flag=True, help="Compare the result of every operation that has a type, not only what is declared."
)
@click.option("--double", is_flag=True, help="Make float64 the default dtype, so that rounding hides nothing.")
@click.option(
    "--rtol",
    type=FiniteRange(min=0.0),
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
def verify(context: click.Context, /, **options: Any) -> ExitCode:
    """Verify a program: run it on every rank of a mesh and on one rank, and compare the numbers.

    Compared are losses, every parameter's gradient as it enters the optimizer, parameters after the last step, what
    assert_type declares and what checkpoint_value names. No annotation is needed: where nothing says how the ranks'
    tensors combine, every way in which they could is tried. In the script's arguments {dp} is the size of axis dp, and
    {world_size} the number of ranks; both are 1 in the run on one rank. The types are checked in the same runs.

    Started by torchrun, or a launcher like it, the command uses its ranks, devices and back end; rank 0 prints.

    Exit codes: 0 both verdicts are clean, 1 findings of either, 2 no verdict (wrong usage, a rank failed or hung,
    nothing to compare), 3 inconclusive (losses or gradients were not compared, or the two runs do different work).
    """
    own_process = context.find_root().obj is OWN_PROCESS
    return AskedVerify(configured=configured(context), own_process=own_process, **options).run()
