"""Pieces that all ranks have drawn alike, drawn as pieces of one whole."""

from __future__ import annotations

import ast
import re

from shardwise.diagnostics.fix import Fix, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import last_assigned, location_in

from .expressions import callee, is_path, text_of

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


def _sizes(location: SourceLocation, node: ast.AST) -> list[ast.expr]:
    """The sizes that a call which draws numbers is given; nothing of another expression."""
    if not isinstance(node, ast.Call) or callee(location, node) not in _DRAWS:
        return []
    alone = node.args[0] if len(node.args) == 1 else None
    return alone.elts if isinstance(alone, ast.Tuple | ast.List) else node.args
