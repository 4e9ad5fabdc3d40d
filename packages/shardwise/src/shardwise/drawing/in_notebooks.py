"""The HTML that a notebook shows of a type, a spec, a mesh, a layout or a plan.

What has no picture, as a spec with axes that no mesh names, stays text.
"""

from __future__ import annotations

import html
import math
from dataclasses import replace

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.given import outermost_first
from shardwise.mesh.normalize import normalize_partition_spec
from shardwise.types.notation import TypedShape
from shardwise.types.placement import V
from shardwise.types.spec import PartitionSpec, entry_axes
from shardwise.types.tensor_type import TensorType

from .drawing import Drawing
from .shards import sharded_picture
from .subjects import draw
from .tensors import LIMIT


def html_of(value: object) -> str | None:
    """The drawing of ``value``, and of a type also its text; None if there is none, so that its text is shown."""
    if isinstance(value, TypedShape):
        return _type_html(value)
    return _spec_html(value) if isinstance(value, PartitionSpec) else _picture_of(value)


def _picture_of(value: object) -> str | None:
    try:
        return _scrolled(draw(value))
    except SpmdTypeError:
        return None


def _scrolled(drawing: Drawing) -> str:
    return f'<div style="overflow-x:auto">{drawing.svg()}</div>'


def _type_html(typed: TypedShape) -> str:
    """What one rank has in words, and the whole tensor as a picture."""
    drawn = _picture_of(typed) if typed.type.axes else None
    return f"<p><code>{html.escape(str(typed))}</code> on each rank</p>{drawn or ''}"


def _spec_html(spec: PartitionSpec) -> str | None:
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
