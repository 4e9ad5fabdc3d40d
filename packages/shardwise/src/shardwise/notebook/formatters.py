"""How a notebook shows what a cell ends with: types, specs, meshes, layouts and plans as pictures, findings in colours.

``%load_ext shardwise`` tells it to the shell. What has no picture, as a spec with axes that no mesh names, stays text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import WIDTH, Finding, absolute_root, finding_lines, render
from shardwise.diagnostics.printing.limits import DEFAULT
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.text import render_result
from shardwise.drawing.drawing import Drawing
from shardwise.drawing.shards import sharded_picture
from shardwise.drawing.subjects import draw
from shardwise.drawing.tensors import LIMIT
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh
from shardwise.mesh.given import outermost_first
from shardwise.mesh.layout import Layout
from shardwise.mesh.normalize import normalize_partition_spec
from shardwise.op_rules.transitions import Transition
from shardwise.planner.plans import Plan
from shardwise.types.notation import TypedShape
from shardwise.types.placement import V
from shardwise.types.spec import PartitionSpec, entry_axes
from shardwise.types.tensor_type import TensorType
from shardwise.verifier.text import Verdict, render_verdict

from .coloured_text import block

PICTURED: tuple[type, ...] = (Plan, Transition, Layout, MeshAxis, CurrentMesh, DeviceMesh)
Text = Callable[[Any], str]


def register_formatters(shell: object) -> None:
    """Tell an IPython shell how to show our values, as HTML and, where their repr is long, as text."""
    formatters: dict[str, Any] = shell.display_formatter.formatters  # type: ignore[attr-defined]  # of IPython's shell
    pages, texts = formatters["text/html"], formatters["text/plain"]
    for kind in PICTURED:
        pages.for_type(kind, picture_of)
    pages.for_type(TypedShape, type_html)
    pages.for_type(PartitionSpec, spec_html)
    pages.for_type(Finding, finding_html)
    said: dict[type, Text] = {TypedShape: str, Finding: render, RunResult: render_result, Verdict: render_verdict}
    for kind, text in said.items():
        texts.for_type(kind, lambda value, printer, cycle, text=text: printer.text(text(value)))
    for kind in (RunResult, Verdict):
        pages.for_type(kind, lambda value, text=said[kind]: block([[("", line)] for line in text(value).split("\n")]))


def picture_of(value: object) -> str | None:
    """The drawing of ``value``; None if there is none, so that its text is shown."""
    try:
        return _scrolled(draw(value))
    except SpmdTypeError:
        return None


def _scrolled(drawing: Drawing) -> str:
    return f'<div style="overflow-x:auto">{drawing.svg()}</div>'


def type_html(typed: TypedShape) -> str:
    """What one rank has in words, and the whole tensor as a picture."""
    drawn = picture_of(typed) if typed.type.axes else None
    return f"<p><code>{html.escape(str(typed))}</code> on each rank</p>{drawn or ''}"


def spec_html(spec: PartitionSpec) -> str | None:
    """The spec on the smallest tensor that it cuts evenly."""
    try:
        known = normalize_partition_spec(spec)
    except SpmdTypeError:
        return None
    cuts = [entry_axes(entry) for entry in known]
    axes = outermost_first(axis for entry in cuts for axis in entry)
    if not axes:
        return None
    shape = tuple(math.prod(axis.size() for axis in entry) for entry in cuts)
    typed = TypedShape("float32", shape, TensorType.of(dict.fromkeys(axes, V), known))
    told = ", ".join(f"{axis!r}={axis.size()}" for axis in axes)
    title = f"{spec!r} on {told}, of a tensor of shape {list(shape)}"
    return _scrolled(Drawing(lambda limit: replace(sharded_picture(typed, axes, limit=limit), title=title), LIMIT))


def finding_html(finding: Finding) -> str:
    """As in a terminal with colours."""
    return block(finding_lines(finding, WIDTH, absolute_root(None), DEFAULT))
