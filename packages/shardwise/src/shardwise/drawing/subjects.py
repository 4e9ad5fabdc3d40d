"""``draw``: a picture of whatever has one, a tensor, a type, a mesh, a layout, a placement or a plan."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdValueError, shown
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import CurrentMesh
from shardwise.mesh.given import is_mesh, mesh_of
from shardwise.mesh.index_map import IndexMap
from shardwise.mesh.layout import Layout
from shardwise.mesh.names import NamedAxis
from shardwise.mesh.program import mesh_at_hand
from shardwise.op_rules.transitions import TRANSITIONS, Transition
from shardwise.planner.plans import Plan
from shardwise.types.notation import TypedShape, parse
from shardwise.types.placement import KINDS, PerMeshAxisLocalSpmdType, PerMeshAxisSpmdType, Shard
from shardwise.types.spec import entry_axes

from .drawing import Drawing
from .layout_pictures import layout_picture
from .mesh import mesh_picture, row_major
from .model import Look, Picture, Words
from .model import Sequence as Blocks
from .plan_pictures import plan_picture
from .shards import sharded_picture
from .spread_tensor import MeshPoint
from .tensors import LIMIT, element_grid
from .transition_pictures import transition_picture
from .type_pictures import type_along_an_axis

_TRANSITION = re.compile(r"\s*(?P<op>[a-z_]+)\s+(?P<src>[^\s>]+)\s*->\s*(?P<dst>\S+)\s*")
_PLACEMENT = re.compile(rf"[RIVP]|P\((?:{'|'.join(KINDS)})\)|S\(-?\d{{1,3}}\)")
_DRAWN = (
    "a tensor, a type (typeof(x), P, or text like 'f32[8, 16@tp] {dp: R}'), a mesh, an axis, a layout, a plan, or a "
    "transition like 'all_gather S(0) -> R'"
)


def draw(
    x: object,
    *,
    mesh: object = None,
    names: Sequence[str] | None = None,
    local: bool | None = None,
    highlight: str | None = None,
    node_size: int | None = None,
    limit: int = LIMIT,
) -> Drawing:
    """A drawing of ``x``: print it for text, ``.svg()`` and ``.html()`` for pages; a notebook shows it by itself.

    ``x``          a tensor, a type (``typeof(x)`` or its text), a mesh, an axis, a layout, a plan, or a transition.
    ``mesh``       for types: a DeviceMesh or a dict from names to axes or sizes; the current mesh if left out.
    ``names``      of the tensor's dims.
    ``local``      sizes are those of one rank. In text they are those of the whole tensor unless this says otherwise; a
                   tensor and ``typeof(x)`` have those of one rank.
    ``highlight``  for meshes: the axis whose fibers are told apart; ``node_size`` so many ranks share a node.
    ``limit``      so many indices of a dim are drawn.

    Errors: TypeError (SW905) for what has no picture; ValueError (SW905) for text that cannot be read, with the place.
    Example:
        >>> print(draw("f32[4@tp]", mesh={"tp": 2}))
        f32[4@tp] on tp=2
        <BLANKLINE>
        which rank holds which block      what each rank holds
        <BLANKLINE>
        dim 0 @ tp →                      tp →
        ┌───────┬───────┐                     0        1
        │ tp=0  │ tp=1  │                 ┌────────┬────────┐
        └───────┴───────┘                 │ rank 0 │ rank 1 │
          0   1   2   3                   │ [0:2]  │ [2:4]  │
        ┌───┬───┬───┬───┐                 └────────┴────────┘
        │ 0 │ 0 │ 1 │ 1 │
        └───┴───┴───┴───┘
    """
    for name, value in (("limit", limit), ("node_size", node_size)):
        if not isinstance(value, int) and (value is not None or name == "limit"):
            raise SpmdArgumentError(f"{name} is a whole number, got {shown(value)}", code="SW905")
    if limit < 3:
        raise SpmdValueError(f"limit is at least 3 (two ends and an ellipsis), got {limit}", code="SW905")
    if node_size is not None and node_size < 1:
        raise SpmdValueError(f"node_size is a number of ranks, got {node_size}", code="SW905")
    return Drawing(_maker(x, mesh, names, local, highlight, node_size), limit)


Maker = Callable[[int], Picture]


def _maker(
    x: object,
    mesh: object,
    names: Sequence[str] | None,
    local: bool | None,
    highlight: str | None,
    node_size: int | None,
) -> Maker:
    if isinstance(x, str):
        return _of_text(x, _axes_of(mesh), names, local=bool(local))
    if isinstance(x, TypedShape):
        return _of_type(x, _axes_of(mesh, x), names, local=local is not False)
    if isinstance(x, Plan):
        axes = _axes_of(mesh, TypedShape(x.dtype, x.shape, x.src))
        return lambda limit: plan_picture(x, axes, limit=limit)
    if isinstance(x, (PerMeshAxisLocalSpmdType, Shard)):
        return lambda limit: type_along_an_axis(x)
    if isinstance(x, Transition):
        return lambda limit: transition_picture(x)
    if isinstance(x, (Layout, IndexMap)):
        return lambda limit: layout_picture(x, limit=limit)
    if isinstance(x, MeshAxis):
        return lambda limit: layout_picture(x.layout, name=repr(x), limit=limit)
    if _is_tensor(x):
        return _of_tensor(x, mesh, names)
    if isinstance(x, Mapping) or is_mesh(x):
        layouts = {repr(axis): axis.layout for axis in _axes_of(x)}
        if highlight is not None and highlight not in layouts:
            raise SpmdValueError(
                f"the mesh has no axis {shown(highlight)} to highlight; its axes are {', '.join(layouts) or '(none)'}",
                code="SW905",
            )
        return lambda limit: mesh_picture(layouts, highlight=highlight, node_size=node_size, limit=limit)
    raise SpmdArgumentError(f"draw takes {_DRAWN}; got {shown(x)} of type {type(x).__name__}", code="SW905")


def _axes_of(mesh: object, typed: TypedShape | None = None) -> list[NamedAxis]:
    """The axes of a mesh, outermost first; of the current one, or of a type alone, if none is given."""
    if mesh is None:
        mesh = mesh_at_hand()
    if mesh is None:
        return list(typed.type.axes) if typed is not None else []
    if isinstance(mesh, Mapping) and mesh and all(type(size) is int for size in mesh.values()):
        if any(size < 1 for size in mesh.values()):
            raise SpmdValueError(f"the sizes of a mesh are numbers of ranks, got {shown(dict(mesh))}", code="SW903")
        return [MeshPoint(str(name), layout) for name, layout in row_major(mesh).items()]
    entry: Any = mesh if isinstance(mesh, CurrentMesh) else mesh_of(mesh)  # type: ignore[arg-type]  # it says what is wrong
    named = entry.all_names
    if typed is None:
        return [MeshPoint(name, axis.layout) for name, axis in named.items()] or list(entry.ordered_axes)
    return list(dict.fromkeys(named.values())) or list(entry.ordered_axes)


def _of_text(text: str, axes: Sequence[NamedAxis], names: Sequence[str] | None, *, local: bool) -> Maker:
    if is_placement(text):
        return _maker(_placement(text), None, None, None, None, None)
    found = _TRANSITION.fullmatch(text)
    if found is not None:
        row = _transition(text, found)
        count = (axes[-1].size(),) if axes else ()
        return lambda limit: transition_picture(row, *count, src=found["src"], dst=found["dst"])
    return _of_type(parse(text, {repr(axis): axis for axis in axes}), axes, names, local=local)


def is_placement(text: str) -> bool:
    """``R``, ``I``, ``V``, ``P``, ``P(max)`` or ``S(0)``."""
    return _PLACEMENT.fullmatch(text) is not None


def _placement(text: str) -> PerMeshAxisSpmdType:
    return Shard(int(text[2:-1])) if text[0] == "S" else PerMeshAxisLocalSpmdType(text)


def _transition(text: str, found: re.Match[str]) -> Transition:
    src, dst = (re.sub(r"S\(-?\d+\)", "S", found[place]) for place in ("src", "dst"))
    row = TRANSITIONS.get((found["op"], src, dst))
    if row is None:
        ops = dict.fromkeys(op for op, _, _ in TRANSITIONS)
        known = [f"{src} -> {dst}" for op, src, dst in TRANSITIONS if op == found["op"]]
        dims = "; S is written with its dim, like S(0)" if any("S" in one for one in known) else ""
        ways = f"{found['op']} has {', '.join(known)}{dims}" if known else f"known are {', '.join(ops)}"
        raise SpmdValueError(f"{text!r} is no transition: {ways}", code="SW905")
    return row


def _of_type(typed: TypedShape, axes: Sequence[NamedAxis], names: Sequence[str] | None, *, local: bool) -> Maker:
    whole = _whole(typed) if local else typed
    return lambda limit: sharded_picture(whole, axes, names=names, limit=limit)


def _whole(typed: TypedShape) -> TypedShape:
    """The type of the whole tensor, of which one rank has ``typed``, as if shards were of one length."""
    sizes = list(typed.shape)
    for dim, entry in enumerate(typed.type.spec or ()):
        for axis in entry_axes(entry):
            sizes[dim] *= axis.size()
    return TypedShape(typed.dtype, tuple(sizes), typed.type)


def _is_tensor(x: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _of_tensor(x: object, mesh: object, names: Sequence[str] | None) -> Maker:
    from .contents import readable

    read = readable(x)
    typed = read.typed
    called = names or read.names
    axes = _axes_of(mesh, typed)
    is_placed = bool(typed.type.axes)

    def make(limit: int) -> Picture:
        grid = element_grid(typed.shape, read.text_at(limit), names=called, limit=limit)
        if not is_placed:
            return Picture(str(typed), f"A tensor of shape {list(typed.shape)} and what it holds.", grid, read.notes)
        spread = sharded_picture(_whole(typed), axes, names=called, limit=limit)
        own = Blocks(
            (Words((f"what this rank holds: {typed.dtype} {list(typed.shape)}",), Look.TITLE), grid), across=False
        )
        block = Blocks((own, spread.block), across=False, gap=2)
        return Picture(spread.title, spread.description, block, (*read.notes, *spread.notes))

    return make
