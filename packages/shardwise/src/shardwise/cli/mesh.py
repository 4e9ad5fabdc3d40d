"""``shardwise mesh``: where the ranks of a mesh sit, which of them talk, and which groups stay inside a node."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.printing.printable import columns
from shardwise.diagnostics.result import ExitCode
from shardwise.mesh.shape import MeshShape

from .draw import check_suffix, draw_option, hand_out, is_printed
from .options.mesh_option import MeshParam
from .options.usage import wrong_usage

if TYPE_CHECKING:
    from shardwise.mesh.axis import MeshAxis
    from shardwise.mesh.placement_on_nodes import AxisOnNodes

EPILOG = """\b
Examples:
  shardwise mesh pp=2,dp=4,tp=8 --flatten dp_cp=dp,cp --nodes 8
  shardwise mesh pp=2,dp=4,cp=2,tp=4 --flatten dp_cp=dp,cp --nodes 8 --rank 13
  shardwise mesh pp=2,dp=4,cp=2,tp=4 --folded pp=2,edp=4,ep=8 --nodes 8
  shardwise mesh pp=2,dp=4,tp=8 --nodes 8 --busiest tp -o mesh.svg
  shardwise mesh tp=8,dp=4 --column-major --busiest tp,dp --format json
"""
SHOWN_GROUPS, SHOWN_RANKS = 2, 8
SHOWN_MEMBERS = 64
"""Of the groups of one rank."""
NEAR = 0.7
"""So much alike are two names of which one may be a slip for the other."""
Flattened = dict[str, list[str]]
"""Of one axis: the ``axes`` of the mesh that it is made of, and those ``of_one_rank`` that the mesh has not."""


@click.command(epilog=EPILOG)
@click.argument("mesh", type=MeshParam(), metavar="AXES")
@click.option(
    "--flatten",
    "flattened",
    multiple=True,
    metavar="NAME=AXES",
    help="Several axes seen as one, e.g. dp_cp=dp,cp; one that the mesh has not is of one rank.",
)
@click.option(
    "--folded", type=MeshParam(), metavar="AXES", help="A second mesh over the same ranks, e.g. edp=4,ep=8 for experts."
)
@click.option("--nodes", "per_node", type=click.IntRange(min=1), metavar="N", help="N ranks share a node.")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Where this rank stands, and whom it talks to.")
@click.option("--busiest", metavar="AXES", help="The axes that send most, first (default: the innermost ones).")
@click.option(
    "--column-major", is_flag=True, help="AXES are written innermost first, as Megatron's order tp-cp-ep-dp-pp is."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@draw_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw it too: .svg, .html or .txt. --busiest's first axis is told apart.",
)
def mesh(
    mesh: MeshShape,
    flattened: tuple[str, ...],
    folded: MeshShape | None,
    per_node: int | None,
    rank: int | None,
    busiest: str | None,
    column_major: bool,
    form: str,
    drawn: bool | None,
    output: Path | None,
) -> ExitCode:
    """Show the groups of a mesh with AXES and sizes, outermost first.

    Ranks are numbered row by row, the last axis fastest, as init_device_mesh and JAX's Mesh number them; a node has
    consecutive ranks.

    Exit codes: 0 shown, 2 wrong usage.
    """
    from shardwise.mesh.current import set_current_mesh
    from shardwise.mesh.placement_on_nodes import on_nodes

    check_suffix(output)
    printed = is_printed(drawn, form, output)
    if column_major:
        mesh = MeshShape(mesh.axes[::-1])
    if rank is not None and rank >= mesh.ranks:
        raise click.UsageError(f"--rank {rank}: the mesh {mesh} has the ranks 0 to {mesh.ranks - 1}")
    if per_node is not None and per_node < mesh.ranks and mesh.ranks % per_node:
        fill = max(n for n in range(1, per_node) if mesh.ranks % n == 0)
        raise click.UsageError(f"--nodes {per_node}: {mesh.ranks} ranks do not fill nodes of {per_node}; {fill} would")
    axes = mesh.as_axes()
    wanted = _busiest(busiest, mesh)
    with set_current_mesh(axes):
        shown, made_of = dict(axes), dict[str, Flattened]()
        for one in flattened:
            _flatten(one, axes, shown, made_of)
        if folded is not None:
            shown |= _folded(folded, mesh, shown)
        found = {
            name: on_nodes(axis, mesh.ranks, min(per_node or mesh.ranks, mesh.ranks)) for name, axis in shown.items()
        }
        said = _said(mesh, found, per_node, rank, wanted, made_of)
    click.echo(json.dumps(said, indent=2) if form == "json" else _text(mesh, said, per_node))
    if printed or output is not None:
        from shardwise.drawing.subjects import draw

        try:
            picture = draw(dict(mesh.axes), highlight=wanted[0] if busiest else None, node_size=per_node)
        except SpmdValueError as error:
            if drawn or output is not None:
                raise wrong_usage(error) from None
            click.echo(f"shardwise: no picture: {error.message}", err=True)
        else:
            hand_out(picture, output, printed=printed)
    return ExitCode.CLEAN


def _flatten(text: str, axes: dict[str, MeshAxis], shown: dict[str, MeshAxis], made_of: dict[str, Flattened]) -> None:
    """Add the axis that ``text`` makes of several to those that are shown, and to ``made_of`` of which. One that the
    mesh has not is of one rank, as where a parallelism is not used; unless its name is a slip of the pen."""
    from shardwise.mesh.axis import MeshAxis, flatten_axes

    name, equals, parts = (piece.strip() for piece in text.partition("="))
    names = [one.strip() for one in parts.split(",")]
    absent = [one for one in names if one not in axes]
    twice = [one for at, one in enumerate(names) if one in names[:at]]
    if not equals or not name.isidentifier() or "" in names:
        raise click.UsageError(f"--flatten {text}: write it like dp_cp=dp,cp")
    for one in absent:
        if not one.isidentifier():
            raise click.UsageError(f"--flatten {text}: {one!r} is no name of an axis: write it like dp_cp=dp,cp")
        near = _near(one, axes)
        if near:
            raise click.UsageError(
                f"--flatten {text}: the mesh has no axis {one!r}; did you mean {near!r}? An axis of one rank with such "
                f"a name is given to the mesh, as {one}=1"
            )
    if twice:
        raise click.UsageError(f"--flatten {text}: {twice[0]} is named twice, name each axis once")
    if name in shown:
        whose = "an axis of the mesh" if name in axes else "flattened"
        raise click.UsageError(f"--flatten {text}: {name} is {whose} already, choose another name")
    try:
        made_of[name] = {"axes": [one for one in names if one in axes], "of_one_rank": absent}
        those = tuple(axes[one] for one in made_of[name]["axes"])
        shown[name] = flatten_axes(those) if those else MeshAxis.of(1, 1)
    except SpmdTypeError as error:
        raise click.UsageError(f"--flatten {text}: {error.args[0]}") from None


def _near(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` is most likely meant to be: in other letters the same, or with one letter more, less
    or exchanged of three or more. Names like cp and dp are too short to be slips of each other."""
    for one in known:
        if one.casefold() == name.casefold():
            return one
    return next(iter(difflib.get_close_matches(name, list(known), 1, cutoff=NEAR)), None)


def _folded(folded: MeshShape, mesh: MeshShape, shown: dict[str, MeshAxis]) -> dict[str, MeshAxis]:
    """The axes of the second mesh; one that is called as another must be the same."""
    from shardwise.mesh.placement_on_nodes import other_axes

    if folded.ranks != mesh.ranks:
        said = f"{folded.arithmetic} ranks, and the mesh {mesh} has {mesh.ranks}"
        raise click.UsageError(f"--folded {folded}: {said}: both meshes have the same ranks")
    found = other_axes(mesh.sizes, dict(folded.axes))
    for name, axis in found.items():
        if shown.get(name, axis) is not axis:
            said = f"{name} is {axis.layout} there and {shown[name].layout} in {mesh}"
            raise click.UsageError(f"--folded {folded}: {said}: give one of them another name")
    return found


def _busiest(text: str | None, mesh: MeshShape) -> list[str]:
    """All axes, those that send most first."""
    first = [] if text is None else [one.strip() for one in text.split(",")]
    for name in first:
        if name not in mesh.names or first.count(name) > 1:
            raise click.UsageError(f"--busiest {text}: {name!r} is not an axis of {mesh}, or is there twice")
    return [*first, *(name for name in reversed(mesh.names) if name not in first)]


def _said(
    mesh: MeshShape,
    found: dict[str, AxisOnNodes],
    per_node: int | None,
    rank: int | None,
    busiest: list[str],
    made_of: dict[str, Flattened],
) -> dict[str, object]:
    from shardwise.mesh.index_map import IndexMap
    from shardwise.mesh.placement_on_nodes import launch_order, nodes_of, nodes_of_job

    whole = IndexMap.compact(mesh.sizes)
    order = launch_order(dict(mesh.axes), busiest)
    size = min(per_node or mesh.ranks, mesh.ranks)
    nodes = nodes_of_job(mesh.ranks, size)
    said: dict[str, object] = {
        "schema": "shardwise.mesh/1",
        "mesh": dict(mesh.axes),
        "ranks": mesh.ranks,
        "ranks_per_node": per_node,
        "axes": [
            {
                "name": name,
                "layout": str(one.axis.layout),
                "size": one.fiber.size,
                "groups": one.groups.size,
                "first_groups": [_ranks(one, at) for at in range(min(SHOWN_GROUPS, one.groups.size))],
                "nodes_of_a_group": one.nodes if per_node else None,
                "nodes_as_launched": nodes_of(order.compose(one.fiber).modes, size) if per_node else None,
            }
            for name, one in found.items()
        ],
        "flattened": made_of,
        "nodes": nodes.first.size if per_node else None,
        "launch_order": {
            "busiest_first": busiest,
            "layout": str(order),
            "is_the_meshs_own": order.coalesce() == whole.coalesce(),
        },
    }
    if rank is not None:
        digits = whole.digits(rank)
        said["rank"] = {
            "rank": rank,
            "coordinates": dict(zip(mesh.names, digits, strict=True)),
            "node": None if per_node is None else nodes.place(rank)[0],
            "groups": {name: _group_of(one, rank) for name, one in found.items()},
            "launched_as": order(rank),
            "launched_here": order.inverse()(rank),
        }
    return said


def _ranks(one: AxisOnNodes, at: int) -> list[int]:
    """The first ranks of a group."""
    return [one.groups(at) + one.fiber(place) for place in range(min(one.fiber.size, SHOWN_RANKS))]


def _group_of(one: AxisOnNodes, rank: int) -> list[int]:
    """The ranks that ``rank`` talks to along the axis, itself included."""
    start = rank - one.fiber(one.axis.layout.place(rank))
    if len(one.fiber.modes) == 1:
        [(size, stride)] = one.fiber.modes
        return list(range(start, start + size * stride, stride))
    return [start + one.fiber(place) for place in range(one.fiber.size)]


def _text(mesh: MeshShape, said: dict[str, object], per_node: int | None) -> str:
    axes: list[dict[str, object]] = said["axes"]  # type: ignore[assignment]  # as written above
    order: dict[str, object] = said["launch_order"]  # type: ignore[assignment]
    moved = bool(per_node) and not order["is_the_meshs_own"]
    heads = ["nodes of a group"] * bool(per_node) + ["as launched below"] * moved
    rows = [["axis", "layout", "groups", *heads, "ranks of the first groups"]]
    for one in axes:
        first: list[list[int]] = one["first_groups"]  # type: ignore[assignment]
        groups, size = int(str(one["groups"])), int(str(one["size"]))
        shown = "  ".join(" ".join(map(str, ranks)) + (" .." if size > len(ranks) else "") for ranks in first)
        inside = [_inside(one["nodes_of_a_group"])] * bool(per_node) + [_inside(one["nodes_as_launched"])] * moved
        many = f"{groups} of {size}"
        rows.append(
            [
                str(one["name"]),
                str(one["layout"]),
                many,
                *inside,
                shown + ("  .." if groups > len(first) else ""),
            ]
        )
    nodes: int | None = said["nodes"]  # type: ignore[assignment]
    lines = [
        f"{mesh}: {mesh.arithmetic} rank{'' if mesh.ranks == 1 else 's'}"
        + (f" on {counted(nodes, 'node')} of {per_node}" if nodes else ""),
        "",
    ]
    lines += columns(rows)
    made_of: dict[str, Flattened] = said["flattened"]  # type: ignore[assignment]
    told = [_of_one_rank(name, one) for name, one in made_of.items() if one["of_one_rank"]]
    lines += ["", *told] if told else []
    names: list[str] = order["busiest_first"]  # type: ignore[assignment]
    lines += [
        "",
        f"launch order with adjacent ranks along {', then '.join(names)}: "
        + (
            "as the mesh is written"
            if order["is_the_meshs_own"]
            else f"{order['layout']}, init_device_mesh with {', '.join(reversed(names))}"
        ),
    ]
    if mesh.ranks > 1:
        lines.append(_numbering(mesh))
    if "rank" in said:
        lines += ["", *_rank_lines(said["rank"], not order["is_the_meshs_own"])]  # type: ignore[arg-type]
    return "\n".join(lines)


def _of_one_rank(name: str, one: Flattened) -> str:
    absent, made_of = one["of_one_rank"], " and ".join(one["axes"]) or "of one rank too"
    are = "is no axis of the mesh, so it is" if len(absent) == 1 else "are no axes of the mesh, so they are"
    return f"{', '.join(absent)} {are} of one rank, and {name} is {made_of}"


def _numbering(mesh: MeshShape) -> str:
    """How coordinates make a rank, and those of the last one."""
    from shardwise.mesh.index_map import IndexMap

    whole = IndexMap.compact(mesh.sizes)
    terms = [
        name if stride == 1 else f"{stride} {name}" for name, stride in zip(mesh.names, whole.strides, strict=True)
    ]
    last = ", ".join(f"{name}={size - 1}" for name, size in mesh.axes)
    return f"coordinates count from 0, and their rank is {' + '.join(terms)}: {last} is rank {mesh.ranks - 1}"


def _inside(nodes: object) -> str:
    return "1, inside" if nodes == 1 else "differs" if nodes is None else str(nodes)


def _rank_lines(rank: dict[str, object], moved: bool) -> list[str]:
    places: dict[str, int] = rank["coordinates"]  # type: ignore[assignment]
    groups: dict[str, list[int]] = rank["groups"]  # type: ignore[assignment]
    node = "" if rank["node"] is None else f", node {rank['node']}"
    lines = [f"rank {rank['rank']}: {', '.join(f'{name}={at}' for name, at in places.items())}{node}"]
    if moved:
        lines.append(f"  as launched above this place has rank {rank['launched_as']}; rank {rank['rank']} has place")
        lines[-1] += f" {rank['launched_here']}"
    return [*lines, *(f"  {name} with {_members(ranks)}" for name, ranks in groups.items())]


def _members(ranks: list[int]) -> str:
    """The ranks of a group; of a large one the first and the last."""
    if len(ranks) <= SHOWN_MEMBERS:
        return " ".join(map(str, ranks))
    return f"{' '.join(map(str, ranks[:SHOWN_RANKS]))} .. {ranks[-1]}, {len(ranks)} ranks"
