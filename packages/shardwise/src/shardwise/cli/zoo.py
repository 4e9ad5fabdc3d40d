"""``shardwise zoo``: the known ways to train in parallel, listed, shown and run beside one device."""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.printing.paint import Line, paint
from shardwise.diagnostics.result import ExitCode
from shardwise.mesh.shape import MeshShape

from .draw import check_suffix, show, write
from .options.mesh_option import MeshParam

if TYPE_CHECKING:
    from shardwise.zoo.catalogue import Entry

WIDTH = 100
CODE_WIDTH = 126
"""The longest line of a program and its number: none is cut off."""
BYTES = 8
"""Of an element: programs of the zoo compute in float64."""
EPILOG = """\b
Examples:
  shardwise zoo                                    what there is
  shardwise zoo tensor_parallel                    when to choose it, its mesh, its code
  shardwise zoo tensor_parallel --mesh dp=2,tp=4   the same on a mesh of another size
  shardwise zoo tensor_parallel --types            its code with the type of every line beside it
  shardwise zoo tensor_parallel --draw             its mesh, drawn
  shardwise zoo tensor_parallel -o mesh.svg        the drawing as a file
  shardwise zoo tensor_parallel --run              on real processes, compared with one device
"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.option("--mesh", type=MeshParam(), metavar="AXES", help="Sizes of its axes, e.g. dp=2,tp=4 (default: its own).")
@click.option("--types", "typed", is_flag=True, help="Show the code alone, with the type of every line beside it.")
@click.option(
    "--draw",
    is_flag=True,
    help="Draw the mesh, which ranks belong together along each axis, and the schedule of a pipeline.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The drawing as a .svg, .html or .txt file."
)
@click.option(
    "--run",
    "runs",
    is_flag=True,
    help="Run it on gloo processes, one a rank, and compare losses, gradients, momenta and weights with one device.",
)
def zoo(name: str | None, mesh: MeshShape | None, typed: bool, draw: bool, output: Path | None, runs: bool) -> ExitCode:
    """Show the ways to train in parallel: data, tensor, sequence, context, expert and pipeline parallelism and more.

    Each is a page: the mesh and why it is laid out so, when to choose it, what breaks it, what it needs, and a program
    of typed collectives beside the program of one device that it equals.

    Exit codes: 0 fine, 1 with --run if the numbers differ, 2 wrong usage.
    """
    from shardwise.zoo.catalogue import entry, names

    check_suffix(output)
    if name is None:
        if mesh is not None or typed or draw or output is not None or runs:
            raise click.UsageError("--mesh, --types, --draw, -o and --run are of one program: shardwise zoo NAME")
        column = max(map(len, names())) + 2
        for one in names():
            click.echo(
                textwrap.fill(
                    entry(one).title, WIDTH, initial_indent=f"{one:<{column}}", subsequent_indent=" " * column
                )
            )
        return ExitCode.CLEAN
    if runs and (draw or output is not None):
        raise click.UsageError("--run compares numbers and draws nothing: leave --draw and -o out")
    if typed and (runs or draw or output is not None):
        raise click.UsageError("--types shows code: leave --run, --draw and -o out")
    found = entry(name)
    sizes = _sizes(found, mesh)
    if runs:
        return _run(found, sizes)
    if draw or output is not None:
        return _draw(found, sizes, output)
    click.echo(paint(typed_code(found, sizes), color=False) if typed else "\n".join(_page(found, sizes)))
    return ExitCode.CLEAN


def typed_code(found: Entry, sizes: Mapping[str, int]) -> list[Line]:
    """The functions that run, with the types that the checker finds: of the last rank, which has a pipeline's loss."""
    from shardwise.host.program import Program
    from shardwise.report.annotated_source import annotated_lines
    from shardwise.zoo.catalogue import FOLDER

    from .runs.run import CheckOptions, check_program

    _require_fit(found, sizes)
    ranks = prod(sizes.values())
    program = Program(module=found.module.__name__, arguments=_arguments(sizes))
    options = CheckOptions(
        ranks, rank=_told_rank(found, ranks), mesh=MeshShape(tuple(sizes.items())), local=False, record=True
    )
    with contextlib.redirect_stderr(io.StringIO()):  # its losses, which are not compared here
        result = check_program(program, options)
    return annotated_lines(result, width=CODE_WIDTH, root=str(FOLDER))


def _arguments(sizes: Mapping[str, int]) -> list[str]:
    return [word for axis, size in sizes.items() for word in (f"--{axis}", str(size))]


def _told_rank(found: Entry, ranks: int) -> int:
    return 0 if found.program.order is None else ranks - 1


def _require_fit(found: Entry, sizes: Mapping[str, int]) -> None:
    """A usage error where the program's own sizes do not run on this mesh."""
    if (misfit := found.program.misfit(sizes)) is not None:
        raise click.UsageError(f"--mesh {','.join(f'{axis}={size}' for axis, size in sizes.items())}: {misfit}")


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
    yield f"On {', which experts see as '.join(shown)}, in float64, {who(found)}"
    for verb, elements, noun, formula in needs(found, sizes):
        said = f"  {verb:<8}  {elements * BYTES:,.0f} bytes {noun} = "
        yield textwrap.fill(f"{formula} elements", WIDTH, initial_indent=said, subsequent_indent=" " * 12)
    told = ", ".join(f"{name}(e) is {law}" for name, law in found.laws().items())
    yield from textwrap.wrap(f"where over an axis of n ranks {told}.", WIDTH)
    yield ""
    misfit = found.program.misfit(sizes)
    yield from commands(found, sizes) if misfit is None else [f"Its own sizes do not run so: {misfit}."]
    yield ""
    yield found.code


def who(found: Entry) -> str:
    """Whose numbers those of the formulas are."""
    return "a rank" if found.program.order is None else "rank 0 (which keeps the most activations)"


def needs(found: Entry, sizes: Mapping[str, int]) -> Iterator[tuple[str, float, str, str]]:
    """What a rank does with how many elements of what, and by which formula: what it holds, keeps and receives."""
    parts = found.parts
    yield "holds", found.memory(sizes), "of weights", parts["Memory"]
    yield "keeps", found.gradients(sizes), "of gradients", parts["Gradients"]
    yield "keeps", found.state(sizes), "of momentum", parts["State"]
    yield "keeps", found.activations(sizes), "of activations", parts["Activations"]
    formulas = found.traffic_formulas()
    for axis, elements in found.traffic(sizes).items():
        yield "receives", elements, f"a step over {axis}", formulas[axis]


def commands(found: Entry, sizes: Mapping[str, int]) -> Iterator[str]:
    """That run it, and that show the type of every line: on the last rank, which has the loss of a pipeline."""
    module, ranks = found.module.__name__, prod(sizes.values())
    mesh = ",".join(f"{axis}={size}" for axis, size in sizes.items())
    rank = f" --rank {at}" if (at := _told_rank(found, ranks)) else ""
    options = " ".join(_arguments(sizes))
    yield f"torchrun --nproc-per-node {ranks} -m {module} {options}"
    yield f"shardwise check -m {module} --mesh {mesh}{rank} --global --annotate -- {options}"


def _draw(found: Entry, sizes: Mapping[str, int], output: Path | None) -> ExitCode:
    from shardwise.drawing.drawing import Drawing
    from shardwise.drawing.tensors import LIMIT
    from shardwise.zoo.program_picture import program_picture

    drawing = Drawing(lambda limit: program_picture(found, sizes, limit=limit), LIMIT)
    show(drawing) if output is None else write(drawing, output)
    return ExitCode.CLEAN


def _run(found: Entry, sizes: Mapping[str, int]) -> ExitCode:
    from shardwise.zoo.evidence import run

    _require_fit(found, sizes)
    evidence = run(found.program, sizes)
    click.echo("step  loss on the mesh  loss on one device")
    for step, (here, there) in enumerate(evidence.losses):
        click.echo(f"{step:>4}  {here:<16.12f}  {there:.12f}")
    click.echo("")
    for wrong in evidence.disagreements:
        click.echo(str(wrong))
    differ, ranks = len(evidence.disagreements), len(evidence.held)
    click.echo(
        f"{evidence.compared} losses, gradients, momenta and weights on {ranks} ranks compared with one device: "
        + (f"{differ} differ" if differ else "all equal")
    )
    received = {f"a step over {axis}": number for axis, number in evidence.received[0].items()}
    kept = {"of gradients": evidence.kept[0].gradients, "of activations": evidence.kept[0].activations}
    measured = {"of weights": evidence.held[0], **kept, "of momentum": evidence.state[0], **received}
    for verb, elements, noun, _ in needs(found, sizes):
        click.echo(f"rank 0 {verb} {measured.get(noun, 0):,.0f} bytes {noun}; by the formula {elements * BYTES:,.0f}")
    return ExitCode.FINDINGS if differ else ExitCode.CLEAN
