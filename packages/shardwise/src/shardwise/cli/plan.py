"""``shardwise plan``: how a tensor gets from one type to another, what that sends, and what else was possible."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.printing.printable import columns
from shardwise.diagnostics.printing.quantities import byte_count, duration
from shardwise.diagnostics.result import ExitCode
from shardwise.mesh.shape import MeshShape

from .draw import check_suffix, draw_option, hand_out, is_printed
from .options.link_options import link_options, links_of
from .options.mesh_option import MeshParam
from .options.usage import wrong_usage
from .runs.progress import progress

if TYPE_CHECKING:
    from shardwise.mesh.axis import MeshAxis
    from shardwise.planner.plans import Plan, PlanStep, RejectedPlan
    from shardwise.types.notation import TypedShape
    from shardwise.types.tensor_type import TensorType

EPILOG = """\b
Examples:
  shardwise plan "f32[8192, 4096@(dp,tp)]" "f32[8192@dp, 4096]" --mesh dp=8,tp=4
  shardwise plan "bf16[4096] {dp: P, tp: I}" "bf16[4096] {dp: R, tp: I}" --mesh dp=8,tp=4 --bandwidth tp=450,dp=50
  shardwise plan "f32[8, 8@tp]" "f32[8@tp, 8]" --mesh dp=2,tp=2
  shardwise plan "f32[64@(dp,tp)]" "f32[64@(tp,dp)]" --mesh dp=2,tp=4 --apart --format json
"""

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class BytesParam(click.ParamType):  # type: ignore[type-arg]  # no generic in click 8.1
    """A number of bytes, with or without a unit."""

    name = "bytes"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value))
        if found is None or found[2] not in _UNITS:
            self.fail(f"{value!r} is no number of bytes: write it like 67108864, 64MiB or 0.5GB", param, ctx)
        most = float(found[1]) * _UNITS[found[2]]
        if most > sys.maxsize:
            self.fail(f"{found[0][:20]}... is more bytes than an address has: leave the limit out", param, ctx)
        return int(most)


@click.command(epilog=EPILOG)
@click.argument("before", metavar="FROM")
@click.argument("after", metavar="TO")
@click.option("--mesh", type=MeshParam(), required=True, metavar="AXES", help="Axes and sizes, outermost first.")
@link_options
@click.option("--max-bytes", type=BytesParam(), metavar="N", help="No tensor on a rank may be larger, e.g. 64MiB.")
@click.option("--apart", is_flag=True, help="No collective over several axes at once: the mesh has no group for it.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@draw_option
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: .svg, .html or .txt.")
def plan(
    before: str,
    after: str,
    mesh: MeshShape,
    bandwidth: Mapping[str, float] | None,
    latency: Mapping[str, float] | None,
    max_bytes: int | None,
    apart: bool,
    form: str,
    drawn: bool | None,
    output: Path | None,
) -> ExitCode:
    """Plan how a tensor gets from one type to another.

    FROM and TO are types with the global shape: "f32[8192, 4096@(dp,tp)] {pp: I}" is cut along dim 1 over dp and then
    over tp, and invariant over pp. An axis of the mesh that a type does not name is R.

    Exit codes: 0 there is a plan, 2 wrong usage, or no steps lead there.
    """
    from shardwise.mesh.current import set_current_mesh
    from shardwise.planner.alternatives import alternatives
    from shardwise.planner.route import plan as planned

    check_suffix(output)
    printed = is_printed(drawn, form, output)
    axes = mesh.as_axes()
    together: frozenset[MeshAxis] | None = frozenset() if apart else None
    with set_current_mesh(axes):
        links = links_of(bandwidth, latency, axes, Path.cwd())
        try:
            src, dst = _read(before, axes), _read(after, axes)
            if math.prod(src.shape) >= 1 << 63:
                raise click.UsageError(f"{before!r} has {math.prod(src.shape)} elements, more than PyTorch can count")
            if (src.dtype, src.shape) != (dst.dtype, dst.shape):
                what, one, other = (
                    ("dtype", src.dtype, dst.dtype) if src.shape == dst.shape else ("shape", [*src.shape], [*dst.shape])
                )
                raise click.UsageError(
                    f"a move keeps the dtype and the global shape, and {before!r} has {what} {one}, {after!r} {other}: "
                    "give both the dtype and the shape of the whole tensor"
                )
            with progress(lambda: "looking for the cheapest steps", plain=False):
                found = planned(
                    src.shape, src.dtype, src.type, dst.type, links=links, together=together, max_bytes=max_bytes
                )
        except SpmdTypeError as error:
            raise wrong_usage(error, max_bytes="--max-bytes") from None
        with progress(lambda: "asking DTensor for its plan", plain=False):  # this loads torch
            rejected = alternatives(found, links=links, together=together, max_bytes=max_bytes)
            theirs = _of_dtensor(found, tuple(axes.values()))
        click.echo(_json(found, rejected, theirs) if form == "json" else _text(found, rejected, theirs))
        if printed or output is not None:
            from shardwise.drawing.subjects import draw

            hand_out(draw(found), output, printed=printed)
    return ExitCode.CLEAN


def _read(text: str, axes: Mapping[str, MeshAxis]) -> TypedShape:
    from shardwise.types.notation import TypedShape, parse
    from shardwise.types.placement import R
    from shardwise.types.tensor_type import TensorType

    found = parse(text, axes)
    wide = [axis for axis in axes.values() if axis.size() > 1]
    local = {axis: found.type.get(axis) if axis in found.type else R for axis in wide}
    spec = found.type.spec
    scale = {axis: exponent for axis, exponent in found.type.scale.items() if axis in local}
    narrow = {axis for axis in axes.values() if axis.size() == 1}
    return TypedShape(
        found.dtype, found.shape, TensorType.of(local, None if spec is None else spec.without(narrow), scale=scale)
    )


def _of_dtensor(plan: Plan, axes: tuple[MeshAxis, ...]) -> list[tuple[str, MeshAxis, int]] | str:
    """DTensor's steps with their bytes, or why there are none."""
    from shardwise.interop.tensors.dtensor_steps import NotSaidInDTensor, dtensor_steps
    from shardwise.planner.cost import cost_of

    wide = tuple(axis for axis in axes if axis.size() > 1)
    try:
        with dtensor_steps(wide) as asked:
            steps = asked(plan.shape, plan.dtype, plan.src, plan.dst)
    except NotSaidInDTensor as error:
        return f"{error}"
    except (ImportError, AttributeError) as error:
        return f"the installed torch does not tell ({error})"
    return [(one.op, one.axis, cost_of(one.op, one.elements, one.axis.size(), plan.dtype).bytes) for one in steps]


def _text(plan: Plan, rejected: tuple[RejectedPlan, ...], theirs: list[tuple[str, MeshAxis, int]] | str) -> str:
    lines = [
        f"from {_type(plan, plan.src)}",
        f"to   {_type(plan, plan.dst)}",
        "",
        *(
            columns([_row(at, step, plan) for at, step in enumerate(plan.steps, 1)])
            or ["nothing to do: the types say the same"]
        ),
    ]
    if plan.steps:
        lines += [
            "",
            f"a rank receives {byte_count(plan.bytes)} in {duration(plan.time)}, "
            f"and holds at most {byte_count(plan.largest * _itemsize(plan))} at once",
        ]
    if rejected:
        lines += ["", "not taken"]
        rows = [[f"  {one.name}", "" if one.plan is None else byte_count(one.plan.bytes), one.why] for one in rejected]
        lines += columns(rows)
    lines += ["", "DTensor's redistribute"]
    if isinstance(theirs, str):
        return "\n".join([*lines, f"  cannot be asked: {theirs}"])
    lines += columns([[f"  {op}", f"over {axis!r}", byte_count(received)] for op, axis, received in theirs]) or [
        "  nothing"
    ]
    total = sum(received for *_, received in theirs)
    lines.append(
        f"  a rank receives {byte_count(total)}" + (f", {total / plan.bytes:.2f} times as much" if plan.bytes else "")
    )
    return "\n".join(lines)


def _row(at: int, step: PlanStep, plan: Plan) -> list[str]:
    over = f"over {', '.join(map(repr, step.axes))}" if step.axes else f"by {step.factor:g}"
    sent = [byte_count(step.bytes), duration(step.time)] if step.is_collective else ["-", "-"]
    return [f"{at}. {step.op}", over, *sent, f"-> {_type(plan, step.dst)}"]


def _type(plan: Plan, type: TensorType) -> str:
    from shardwise.types.notation import format_typed_shape

    return format_typed_shape(plan.dtype, plan.shape, type)


def _itemsize(plan: Plan) -> int:
    from shardwise.planner.cost import itemsize

    return itemsize(plan.dtype)


def _json(plan: Plan, rejected: tuple[RejectedPlan, ...], theirs: list[tuple[str, MeshAxis, int]] | str) -> str:
    said: dict[str, object] = {
        "schema": "shardwise.plan/1",
        "from": _type(plan, plan.src),
        "to": _type(plan, plan.dst),
        "bytes": plan.bytes,
        "time_s": plan.time,
        "most_bytes": plan.largest * _itemsize(plan),
        "steps": [
            {
                "op": step.op,
                "axes": [repr(axis) for axis in step.axes],
                "dim": step.dim,
                "from": _type(plan, step.src),
                "to": _type(plan, step.dst),
                "local_shape": list(step.after),
                "bytes": step.bytes,
                "messages": step.messages,
                "time_s": step.time,
                **({"factor": step.factor} if step.op == "scale" else {}),
            }
            for step in plan.steps
        ],
        "rejected": [
            {
                "name": one.name,
                "why": one.why,
                **({} if one.plan is None else {"bytes": one.plan.bytes, "time_s": one.plan.time}),
            }
            for one in rejected
        ],
        "dtensor": {"unknown": theirs}
        if isinstance(theirs, str)
        else {
            "bytes": sum(received for *_, received in theirs),
            "steps": [{"op": op, "axis": repr(axis), "bytes": received} for op, axis, received in theirs],
        },
    }
    return json.dumps(said, indent=2)
