"""``shardwise zoo``: the known ways to train in parallel, listed, shown and run beside one device."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.result import ExitCode
from shardwise.mesh.shape import MeshShape

from .options.mesh_option import MeshParam

if TYPE_CHECKING:
    from shardwise.zoo.catalogue import Entry

WIDTH = 100
BYTES = 8
"""Of an element: programs of the zoo compute in float64."""
EPILOG = """\b
Examples:
  shardwise zoo                                    what there is
  shardwise zoo tensor_parallel                    when to choose it, its mesh, its code
  shardwise zoo tensor_parallel --mesh dp=2,tp=4   the same on a mesh of another size
  shardwise zoo tensor_parallel --draw             its mesh, drawn
  shardwise zoo tensor_parallel --run              on real processes, compared with one device
"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.option("--mesh", type=MeshParam(), metavar="AXES", help="Sizes of its axes, e.g. dp=2,tp=4 (default: its own).")
@click.option(
    "--draw",
    is_flag=True,
    help="Draw the mesh, which ranks belong together along each axis, and the schedule of a pipeline.",
)
@click.option(
    "--run",
    "runs",
    is_flag=True,
    help="Run it on gloo processes, one a rank, and compare losses, gradients and weights with one device.",
)
def zoo(name: str | None, mesh: MeshShape | None, draw: bool, runs: bool) -> ExitCode:
    """Show the ways to train in parallel: data, tensor, sequence, context, expert and pipeline parallelism and more.

    Each is a page: the mesh and why it is laid out so, when to choose it, what breaks it, what it needs, and a program
    of typed collectives beside the program of one device that it equals.

    Exit codes: 0 fine, 1 with --run if the numbers differ, 2 wrong usage.
    """
    from shardwise.zoo.catalogue import entry, names

    if name is None:
        if mesh is not None or draw or runs:
            raise click.UsageError("--mesh, --draw and --run are of one program: shardwise zoo NAME")
        width = max(map(len, names()))
        click.echo("\n".join(f"{one:<{width}}  {entry(one).title}" for one in names()))
        return ExitCode.CLEAN
    found = entry(name)
    sizes = _sizes(found, mesh)
    if runs:
        return _run(found, sizes)
    if draw:
        click.echo("\n\n".join(_drawn(found, sizes)))
        return ExitCode.CLEAN
    click.echo("\n".join(_page(found, sizes)))
    return ExitCode.CLEAN


def _sizes(found: Entry, mesh: MeshShape | None) -> dict[str, int]:
    own = found.program.mesh
    given = dict(own) if mesh is None else dict(zip(mesh.names, mesh.sizes, strict=True))
    if list(given) != list(own):
        raise click.UsageError(
            f"--mesh {mesh}: the axes of {found.name} are {', '.join(own)}, e.g. --mesh "
            + ",".join(f"{axis}={size}" for axis, size in own.items())
        )
    return given


def _page(found: Entry, sizes: Mapping[str, int]) -> Iterator[str]:
    yield f"{found.name}: {found.title}"
    yield ""
    for part in ("Mesh", "Choose", "Breaks"):
        yield textwrap.fill(found.parts[part], WIDTH, initial_indent=f"{part + ':':<9}", subsequent_indent=" " * 9)
    yield ""
    shown = [", ".join(f"{axis}={size}" for axis, size in seen.items()) for seen in found.program.meshes(sizes)]
    yield f"On {', which experts see as '.join(shown)}, in float64, a rank"
    yield f"  holds     {found.memory(sizes) * BYTES:,.0f} bytes of weights = {found.parts['Memory']} elements"
    for axis, elements in found.traffic(sizes).items():
        yield f"  receives  {elements * BYTES:,.0f} bytes a step over {axis}"
    yield ""
    options = " ".join(f"--{axis} {size}" for axis, size in sizes.items())
    yield f"torchrun --nproc-per-node {prod(sizes.values())} -m {found.module.__name__} {options}"
    yield ""
    yield found.code


def _drawn(found: Entry, mesh: Mapping[str, int]) -> Iterator[str]:
    from shardwise.drawing.mesh import mesh_picture, row_major
    from shardwise.drawing.text import text_of
    from shardwise.zoo.schedule_picture import schedule_picture

    own, *folded = found.program.meshes(mesh)
    for axis in own:
        yield text_of(mesh_picture(row_major(own), highlight=axis))
    for sizes in folded:
        for axis in (axis for axis in sizes if axis not in own):
            yield text_of(mesh_picture(row_major(sizes), highlight=axis))
    if found.program.order is not None:
        yield text_of(schedule_picture(found.program.order, mesh["pp"]))


def _run(found: Entry, sizes: Mapping[str, int]) -> ExitCode:
    from shardwise.zoo.evidence import run

    if (misfit := found.program.misfit(sizes)) is not None:
        raise click.UsageError(f"--mesh {','.join(f'{axis}={size}' for axis, size in sizes.items())}: {misfit}")
    evidence = run(found.program, sizes)
    click.echo("step  loss on the mesh  loss on one device")
    for step, (here, there) in enumerate(evidence.losses):
        click.echo(f"{step:>4}  {here:<16.12f}  {there:.12f}")
    click.echo("")
    for wrong in evidence.disagreements:
        click.echo(str(wrong))
    differ = len(evidence.disagreements)
    click.echo(
        f"{evidence.compared} losses, gradients and weights on {len(evidence.held)} ranks compared with one device: "
        + (f"{differ} differ" if differ else "all equal")
    )
    click.echo(
        f"a rank holds {max(evidence.held):,} bytes of weights; by the formula {found.memory(sizes) * BYTES:,.0f}"
    )
    return ExitCode.FINDINGS if differ else ExitCode.CLEAN
