"""Pieces that all ranks make alike: drawn as pieces of one whole, or made whole where a gather would repeat them."""

from __future__ import annotations

import ast
import re

import torch

from shardwise.diagnostics.fix import Fix, Replace, Rewrite
from shardwise.diagnostics.operands import value_of
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import last_assigned, location_in, nodes_in
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.spec import partition_spec_get_shard

from ..calls.located_call import LocatedCall
from ..tensors.tagging import type_of
from .expressions import callee, is_path, running_function, text_of

_DRAWS = ("randn", "rand")
_RANK_FOR = (
    (re.compile(r"(.*mesh.*)\.size\((.*)\)", re.IGNORECASE), r"\1.get_local_rank(\2)"),
    (re.compile(r"((?:\w+\.)*)get_world_size\((.*)\)"), r"\1get_rank(\2)"),
)
"""How a program that writes the number of ranks in one of these ways writes its own number among them."""


def piece_of_whole(location: SourceLocation | None, name: str, dim: int) -> tuple[Fix, ...]:
    """``randn(n // ranks, d)``, drawn with one seed on all ranks, as ``randn(n, d)`` of which each keeps its piece.

    ``name``  what is assigned it, above ``location``; ``dim`` is the dim along which it is said to be a piece.
    """
    value = last_assigned(location, name) if location is not None and is_path(name) else None
    if location is None or value is None:
        return ()
    for call in ast.walk(value):
        sizes = _sizes(location, call)
        size = sizes[dim] if dim < len(sizes) else None
        if not isinstance(call, ast.Call) or not isinstance(size, ast.BinOp) or not isinstance(size.op, ast.FloorDiv):
            continue
        ranks = text_of(location, size.right)
        rank = next((found.expand(to) for of, to in _RANK_FOR if (found := of.fullmatch(ranks))), None)
        if rank is not None:
            help = f"draw all of {name} on every rank, and keep the rank's piece along dim {dim}"
            whole = Rewrite(location_in(location, size), text_of(location, size.left))
            piece = Rewrite(location_in(location, call), f"{{}}.chunk({ranks}, {dim})[{rank}].clone()")
            return (Fix(help, (whole, piece), choice=True),)
    return ()


def made_whole(located: LocatedCall, axis: MeshAxis) -> tuple[Fix, ...]:
    """No gather of what every rank makes alike; it is made as long as the whole, by the size that says how long.

    That is the only size, above the gather in its function, of a dim that is cut along the axis: ``x.shape[1]``.
    """
    location, operand, frame = located.location, located.names[0][1], running_function()
    if location is None or operand is None or frame is None or frame.f_code.co_filename != location.file:
        return ()
    first = frame.f_code.co_firstlineno
    sizes, nodes = [], nodes_in(location.file)
    for node in nodes:
        holder, dim = _size_of(node)
        if holder is None or not isinstance(node, ast.expr) or not first <= node.lineno <= location.line:
            continue
        value = value_of(holder, frame)
        if not isinstance(value, torch.Tensor) or not value.ndim:
            continue
        shard = partition_spec_get_shard(type_of(value).spec, axis)
        if shard is not None and shard.dim == dim % value.ndim:
            sizes.append(node)
    if len(sizes) != 1:
        return ()
    size, ranks = text_of(location, sizes[0]), f"normalize_axis({axis_argument(axis)}).size()"
    help = f"make all of {located.name(0)} on every rank, by {size} * {ranks}, and leave out this {located.op}"
    alone = any(isinstance(node, ast.Call) and sizes[0] in node.args for node in nodes)
    longer = Rewrite(location_in(location, sizes[0]), f"{{}} * spmd.{ranks}" if alone else f"({{}} * spmd.{ranks})")
    return (Fix(help, (longer, Replace(location, operand)), choice=True),)


def _size_of(node: ast.AST) -> tuple[ast.expr | None, int]:
    """``x`` and ``1`` of ``x.shape[1]`` and ``x.size(1)``."""
    part: ast.expr | None = None
    held: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        held, part = node.value.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        held, part = node.func.value, node.args[0] if len(node.args) == 1 else None
    try:
        dim = None if part is None else ast.literal_eval(part)
    except ValueError:
        dim = None
    return (held, dim) if isinstance(dim, int) else (None, 0)


def _sizes(location: SourceLocation, node: ast.AST) -> list[ast.expr]:
    """The sizes that a call which draws numbers is given; nothing of another expression."""
    if not isinstance(node, ast.Call) or callee(location, node) not in _DRAWS:
        return []
    alone = node.args[0] if len(node.args) == 1 else None
    return alone.elts if isinstance(alone, ast.Tuple | ast.List) else node.args
