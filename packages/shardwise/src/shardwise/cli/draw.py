"""``shardwise draw``: a picture of a type, a mesh, a layout or a transition, as text, SVG or a page."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.configuration.whole_file import write_whole
from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.diagnostics.result import ExitCode
from shardwise.mesh.shape import MeshShape

from .options.mesh_option import MeshParam
from .options.output_file import PAGE, require_writable
from .options.usage import wrong_usage

if TYPE_CHECKING:
    from shardwise.drawing.drawing import Drawing

EPILOG = """\b
Examples:
  shardwise draw "f32[2,3,4,5@tp] {dp: R}" --mesh dp=2,tp=2     which rank holds which block
  shardwise draw "f32[4096@(dp,tp), 4096]" --mesh dp=8,tp=4 -o x.svg
  shardwise draw --mesh pp=2,dp=4,tp=8 --highlight dp --nodes 8  the mesh itself
  shardwise draw "(2,4):(8,1)"                                  a layout as an index map
  shardwise draw "all_gather S(0) -> R" --mesh tp=4             before and after, and who needs what
  shardwise draw "P(max)"                                       a type along one axis, and its gradient
  shardwise draw types                                          the five types and their duals
  shardwise draw transitions                                    every way from one type to another
"""
draw_option = click.option(
    "--draw/--no-draw", "drawn", default=None, help="Print a picture below it (default: in text, unless -o is given)."
)
"""Of commands whose answer can be drawn: ``drawn``, which ``is_printed`` reads."""
WRITTEN = {".svg": "svg", ".html": "html", ".htm": "html", ".txt": "text"}
NARROWEST = 20
TEXT_COLUMNS = 100
_LAYOUT = re.compile(r"\s*[(\d-]")


@click.command(epilog=EPILOG)
@click.argument("subject", required=False)
@click.option(
    "--mesh", type=MeshParam(), metavar="AXES", help="The axes of the mesh with their sizes, outermost first."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A .svg, .html or .txt file.")
@click.option("--names", metavar="NAMES", help="What the dims are called, e.g. batch,seq,hidden.")
@click.option("--local", is_flag=True, help="The sizes are those of one rank, not of the whole tensor.")
@click.option("--highlight", metavar="AXIS", help="Of a mesh: tell the fibers of AXIS apart.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Of a mesh: N consecutive ranks share a node.")
@click.option(
    "--limit", type=click.IntRange(3), default=8, show_default=True, help="Draw at most so many indices a dim."
)
@click.option("--width", type=click.IntRange(NARROWEST), help="Columns of text (default: the terminal's), or pixels.")
def draw(
    subject: str | None,
    mesh: MeshShape | None,
    output: Path | None,
    names: str | None,
    local: bool,
    highlight: str | None,
    nodes: int | None,
    limit: int,
    width: int | None,
) -> ExitCode:
    """Draw SUBJECT: a type, a layout, a transition, "types" or "transitions"; without SUBJECT the mesh.

    In a type, as in "f32[8, 16@tp] {dp: R}", the sizes are those of the whole tensor (--local: of one rank), and a dim
    that does not divide is cut as torch.chunk cuts. Without -o the picture is printed as text.

    Exit codes: 0 drawn, 2 wrong usage.
    """
    check_suffix(output)
    called = None if names is None else [name.strip() for name in names.split(",")]
    try:
        drawing = _drawing(subject, mesh, called, local, highlight, nodes, limit)
    except SpmdTypeError as error:
        raise wrong_usage(error) from None
    if output is None:
        show(drawing, width)
    else:
        write(drawing, output, width)
    return ExitCode.CLEAN


def check_suffix(output: Path | None) -> None:
    """A usage error if nobody knows what to write into such a file, or it cannot be written."""
    if output is not None and output.suffix.lower() not in WRITTEN:
        ends = f"ends in {output.suffix!r}" if output.suffix else "has no suffix"
        raise click.UsageError(f"-o {output} {ends}; known are {', '.join(WRITTEN)}")
    require_writable("-o", output, b"" if output is None or WRITTEN[output.suffix.lower()] == "text" else PAGE)


def is_printed(drawn: bool | None, form: str, output: Path | None) -> bool:
    """Whether the picture is printed; a usage error if that would be behind what a program reads."""
    if drawn and form != "text":
        raise click.UsageError(f"--draw prints a picture for people: leave out --format {form}, or draw with -o FILE")
    return form == "text" and output is None if drawn is None else drawn


def hand_out(drawing: Drawing, output: Path | None, *, printed: bool) -> None:
    """Print the drawing below what has been printed, and write it, if that is asked for."""
    if printed:
        click.echo()
        show(drawing)
    if output is not None:
        write(drawing, output)


def show(drawing: Drawing, width: int | None = None) -> None:
    """Print the drawing: as wide as the terminal, if nobody says how wide, and coloured there."""
    terminal = sys.stdout.isatty()
    columns = width or (shutil.get_terminal_size().columns if terminal else TEXT_COLUMNS)
    color = terminal and not os.environ.get("NO_COLOR")
    click.echo(drawing.text(columns, color=color), color=True if color else None)


def write(drawing: Drawing, output: Path, width: int | None = None) -> None:
    """Write the drawing as the file's suffix says, and tell its title on stderr."""
    kind = WRITTEN[output.suffix.lower()]
    text = (
        drawing.text(width or TEXT_COLUMNS) + "\n" if kind == "text" else getattr(drawing, kind)(*filter(None, [width]))
    )
    try:
        write_whole(output, text.encode())
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror}") from None
    click.echo(f"{output}: {drawing.picture().title}", err=True)


def _drawing(
    subject: str | None,
    mesh: MeshShape | None,
    names: list[str] | None,
    local: bool,
    highlight: str | None,
    nodes: int | None,
    limit: int,
) -> Drawing:
    from shardwise.drawing.drawing import Drawing
    from shardwise.drawing.subjects import draw as drawn
    from shardwise.drawing.subjects import is_placement
    from shardwise.drawing.type_pictures import five_types, transition_table

    is_type = subject is not None and "[" in subject and not _LAYOUT.match(subject)
    for option, value, of in (
        ("--highlight", highlight, "meshes"),
        ("--nodes", nodes, "meshes"),
        ("--names", names, "types"),
        ("--local", local or None, "types"),
    ):
        if value is not None and (subject is not None if of == "meshes" else not is_type):
            told = "the mesh" if subject is None else repr(subject)
            remedy = "leave SUBJECT out" if of == "meshes" else f"leave {option} out"
            raise click.UsageError(f"{option} is for {of}, and {told} is none: {remedy}")
    fixed = {"types": five_types, "transitions": transition_table}
    if subject in fixed:
        return Drawing(lambda limit: fixed[subject](), limit)
    sizes = dict(mesh.axes) if mesh is not None else {}
    if subject is None:
        if mesh is None:
            raise click.UsageError("nothing to draw: give a type, a layout or a transition, or --mesh dp=2,tp=4")
        return drawn(sizes, highlight=highlight, node_size=nodes, limit=limit)
    if _LAYOUT.match(subject):
        return drawn(_layout(subject), limit=limit)
    if "[" not in subject and "->" not in subject and not is_placement(subject):
        raise click.UsageError(
            f"{subject!r} is nothing that is drawn: write a type like 'f32[8, 16@tp]' or P, a layout like "
            "'(2,4):(8,1)', a transition like 'all_gather S(0) -> R', types or transitions; leave it out for the mesh"
        )
    return drawn(subject, mesh=sizes, names=names, local=local, limit=limit)


def _layout(text: str) -> object:
    """``(2,4):(8,1)``. Errors: ValueError (SW903)."""
    import ast

    from shardwise.mesh.index_map import IndexMap

    try:
        sizes, strides = (ast.literal_eval(part.strip()) for part in text.split(":"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpmdValueError(
            f"{text!r} is no layout: write sizes and strides like '(2,4):(8,1)'", code="SW903"
        ) from None
    return IndexMap.of_nested(sizes, strides)
