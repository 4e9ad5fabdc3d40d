"""Norms of gradients that are split over ranks: the functions of ours that count every piece once."""

from __future__ import annotations

import ast

from shardwise.diagnostics.fix import Fix, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import last_assigned, location_in, loop_over, node_at, nodes_in

from .expressions import call_at, callee, text_of

COUNTED_ONCE = "shardwise.train.clip_grad_norm_ or grad_norm, which count every element once on any mesh"
"""The help where gradients that are split meet a norm that each rank has of its own."""

_TAKES = ("max_norm", "norm_type", "error_if_nonfinite")
_ROOTS = ("norm", "vector_norm", "sqrt")
_HALVES, _TWOS = ("0.5", "1 / 2"), ("2", "2.0")


def clipped_by_ours(location: SourceLocation | None, help: str) -> tuple[Fix, ...]:
    """``shardwise.train.clip_grad_norm_`` for torch's, with the same arguments."""
    call = call_at(location)
    if location is None or call is None or any(one.arg not in (*_TAKES, "parameters") for one in call.keywords):
        return ()
    if callee(location, call) != "clip_grad_norm_" or len(call.args) > 3:
        return ()
    return (Fix(help, (Rewrite(location_in(location, call.func), "spmd.train.clip_grad_norm_"),)),)


def norm_by_ours(factor: SourceLocation | None) -> tuple[Fix, ...]:
    """``grad_norm(parameters)`` for a norm that the program takes by hand of ``p.grad`` of each ``p``.

    ``factor``  the expression that gradients are scaled by, in which the norm is a variable.
    """
    node = None if factor is None else node_at(factor)
    if factor is None or node is None:
        return ()
    names = dict.fromkeys(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    for name in names:
        made = last_assigned(factor, name)
        if made is None or (parameters := _normed(factor, made)) is None:
            continue
        call = f"train.grad_norm({parameters})"
        help = f"{name} = shardwise.{call} in line {made.lineno}, if it is meant to be the norm of all their gradients"
        return (Fix(help, (Rewrite(location_in(factor, made), f"spmd.{call}"),), choice=True),)
    return ()


def _normed(location: SourceLocation, made: ast.expr) -> str | None:
    """What holds the parameters whose gradients an expression is the norm of; None if it is not seen to be that."""
    inner = _under_root(location, made)
    if inner is None:
        return None
    if isinstance(inner, ast.Name):
        return _added_up(location, inner.id)
    loops = [one for part in ast.walk(inner) for one in getattr(part, "generators", ())]
    if len(loops) != 1 or not isinstance(loops[0].target, ast.Name):
        return None
    return text_of(location, loops[0].iter) if _has_gradient(location, inner, loops[0].target.id) else None


def _under_root(location: SourceLocation, made: ast.expr) -> ast.expr | None:
    """What an expression takes the Euclidean norm, or the square root, of."""
    if isinstance(made, ast.BinOp):
        halved = isinstance(made.op, ast.Pow) and text_of(location, made.right) in _HALVES
        return made.left if halved else None
    if not isinstance(made, ast.Call) or callee(location, made) not in _ROOTS:
        return None
    given = [*made.args, *(one.value for one in made.keywords)]
    if isinstance(made.func, ast.Attribute) and isinstance(made.func.value, ast.Call | ast.Name):
        is_module = text_of(location, made.func.value) in ("torch", "math")
        given = given if is_module else [made.func.value, *given]
    return given[0] if given and all(text_of(location, one) in _TWOS for one in given[1:]) else None


def _added_up(location: SourceLocation, total: str) -> str | None:
    """What a loop goes through that adds something of each gradient to a variable; None if several do."""
    found: set[str | None] = set()
    for node in nodes_in(location.file):
        if isinstance(node, ast.AugAssign) and text_of(location, node.target) == total:
            names = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
            here = location_in(location, node)
            loops: list[str | None] = [
                text_of(location, over)
                for name in names
                if _has_gradient(location, node.value, name) and (over := loop_over(here, name)) is not None
            ]
            found |= set(loops or [None])
    return found.pop() if len(found) == 1 else None


def _has_gradient(location: SourceLocation, node: ast.expr, name: str) -> bool:
    return any(isinstance(one, ast.Attribute) and text_of(location, one) == f"{name}.grad" for one in ast.walk(node))
