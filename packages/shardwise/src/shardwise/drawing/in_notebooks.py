"""The HTML that a notebook shows of a type, a spec, a mesh, a layout or a plan.

What has no picture, as a spec with axes that no mesh names, stays text.
"""

from __future__ import annotations

import html
import math
from dataclasses import replace

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.normalize import (
    normalize_axis,
    normalize_partition_spec,
    shard_types_to_partition_spec,
    sharding_axes,
)
from shardwise.types.notation import TypedShape
from shardwise.types.placement import PerMeshAxisLocalSpmdType, Shard, V
from shardwise.types.spec import PartitionSpec, entry_axes
from shardwise.types.spmd_type import SpmdType
from shardwise.types.tensor_type import TensorType

from .drawing import Drawing
from .shards import sharded_picture
from .subjects import draw
from .tensors import LIMIT

LEAST_LENGTH = 2
"""Of the one dim of a tensor of which nobody says how many it has."""


def html_of(value: object) -> str | None:
    """The drawing of ``value``, and of a type also its text; None if there is none, so that its text is shown."""
    try:
        return _html_of(value)
    except SpmdTypeError:
        return None


def _html_of(value: object) -> str | None:
    if isinstance(value, TypedShape):
        return _type_html(value)
    if isinstance(value, TensorType):
        return _smallest_html(value, repr(value))
    if isinstance(value, SpmdType):
        return _smallest_html(_claimed(value), repr(value))
    if isinstance(value, PartitionSpec):
        spec = normalize_partition_spec(value)
        return _smallest_html(TensorType.of(dict.fromkeys(sharding_axes(spec), V), spec), repr(value))
    return _scrolled(draw(value))


def _scrolled(drawing: Drawing) -> str:
    return f'<div style="overflow-x:auto">{drawing.svg()}</div>'


def _type_html(typed: TypedShape) -> str:
    """What one rank has in words, and the whole tensor as a picture."""
    told = f"<p><code>{html.escape(str(typed))}</code> on each rank</p>"
    try:
        return told + (_scrolled(draw(typed)) if typed.type.axes else "")
    except SpmdTypeError:
        return told


def _smallest_html(of: TensorType, said: str) -> str | None:
    """A type without a shape, on the smallest tensor that it cuts evenly."""
    if not of.axes:
        return None
    shape = tuple(math.prod(axis.size() for axis in entry_axes(entry)) for entry in of.spec or ()) or (LEAST_LENGTH,)
    typed = TypedShape("float32", shape, of)
    told = ", ".join(f"{axis!r}={axis.size()}" for axis in of.axes)
    title = f"{said} on {told}, of a tensor of shape {list(shape)}"
    return _scrolled(Drawing(lambda limit: replace(sharded_picture(typed, of.axes, limit=limit), title=title), LIMIT))


def _claimed(claim: SpmdType) -> TensorType:
    """What a claim says of a tensor of as few dims as it speaks of."""
    local = {normalize_axis(axis): place for axis, place in claim.local_type.items()}
    shards = [place.dim for place in local.values() if isinstance(place, Shard)]
    dims = max((dim + 1 if dim >= 0 else -dim for dim in shards), default=0)
    spec = claim.partition_spec
    spec = shard_types_to_partition_spec(local, dims) if spec is None else normalize_partition_spec(spec)
    known = {axis: place for axis, place in local.items() if isinstance(place, PerMeshAxisLocalSpmdType)}
    places = {axis: known.get(axis, V) for axis in [*local, *sharding_axes(spec)] if axis.size() > 1}
    return TensorType.of(places, spec if any(spec) else None)
