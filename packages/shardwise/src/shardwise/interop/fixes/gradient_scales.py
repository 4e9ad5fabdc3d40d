"""Gradients that are too large or too small by the size of an axis: a division too few, or one too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from shardwise.diagnostics.fix import Argument, Edit, Fix, Remove, Rewrite
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.diagnostics.syntax import last_assigned, location_in, nodes_in
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import Power

from ..autograd.gradient_origin import arrival
from ..calls.located_call import provenance
from .expressions import call_at, callee, group_argument, is_size, keyword_of, ranks_of, text_of

_MOST_OFFERED = 4
_DIVIDES = ("div_", "div", "true_divide")


def scaled(gradients: Sequence[torch.Tensor | None], axis: MeshAxis, exponent: Power) -> tuple[Fix, ...]:
    """What brings gradients of this exponent to the scale of one device, one division or average after the other."""
    known = [one for one in gradients if one is not None]
    if not known or abs(exponent) != 1:
        return ()
    sums = [hop.location for hop in provenance(known[0], axis) if _is_sum(hop.location)]
    backward = arrival(known[0])
    if exponent > 0:
        ways = [*_averaged(sums[:1]), *_times("/", backward, axis)]
    else:
        ways = [*_summed(sums[:1]), *_undivided(sums[:1], backward, axis)] or [*_times("*", backward, axis)]
    return tuple(Fix(help, (edit,)) for help, edit in ways[:_MOST_OFFERED])


def _is_sum(location: SourceLocation) -> bool:
    call = call_at(location)
    return call is not None and callee(location, call) == "all_reduce"


def _averaged(sums: Sequence[SourceLocation]) -> Iterator[tuple[str, Edit]]:
    for location in sums:
        call = call_at(location)
        if call is not None and keyword_of(call, "dst") is None:
            yield f"op=dist.ReduceOp.AVG in line {location.line}", Argument(location, "op", "dist.ReduceOp.AVG", 1)


def _summed(sums: Sequence[SourceLocation]) -> Iterator[tuple[str, Edit]]:
    for location in sums:
        call = call_at(location)
        given = None if call is None else keyword_of(call, "op") or (call.args[1] if len(call.args) > 1 else None)
        if given is not None and text_of(location, given).endswith("AVG"):
            yield f"op=dist.ReduceOp.SUM in line {location.line}", Argument(location, "op", "dist.ReduceOp.SUM", 1)


def _times(sign: str, backward: SourceLocation | None, axis: MeshAxis) -> Iterator[tuple[str, Edit]]:
    """The loss that backward starts from, divided by the number of ranks or multiplied by it."""
    call, group = call_at(backward), group_argument(axis)
    if backward is None or call is None or not isinstance(call.func, ast.Attribute) or group is None:
        return
    if call.func.attr == "backward":
        scaled_loss = f"({{}} {sign} {ranks_of(group)})"
        loss = scaled_loss.replace("{}", text_of(backward, call.func.value))
        help = f"{loss}.backward() in line {backward.line}"
        yield help, Rewrite(location_in(backward, call.func.value), scaled_loss)


def _undivided(
    sums: Sequence[SourceLocation], backward: SourceLocation | None, axis: MeshAxis
) -> Iterator[tuple[str, Edit]]:
    """Divisions by a number of ranks, first those in the functions that sum and start backward, left out.

    One by the number of all ranks stays a division by those of the other axes.
    """
    near = [(location, _beside(location)) for location in sums]
    if backward is not None:
        near.append((backward, _before(backward)))
    seen: set[tuple[str, int, int]] = set()
    for place, nodes in near:
        for node in nodes:
            key = (place.file, node.lineno, node.col_offset)
            if key in seen:
                continue
            seen.add(key)
            way = _without_division(place, node, axis)
            if way is not None:
                yield way


def _near(place: SourceLocation) -> list[ast.expr | ast.AugAssign]:
    nodes = [one for one in nodes_in(place.file) if isinstance(one, ast.BinOp | ast.Call | ast.AugAssign)]
    return sorted(nodes, key=lambda node: abs(node.lineno - place.line))


def _beside(place: SourceLocation) -> list[ast.expr | ast.AugAssign]:
    """What may be a division of gradients, or of what the call at ``place`` sums."""
    call = call_at(place)
    summed = set() if call is None else {name for one in call.args for name in _names(one)}
    return [one for one in _near(place) if "grad" in text_of(place, one) or not summed.isdisjoint(_names(one))]


def _names(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _before(backward: SourceLocation) -> list[ast.expr | ast.AugAssign]:
    """What may be a division of the loss or of a gradient, what the loss is made of first: below ``backward`` other
    numbers are rather for the log.
    """
    call = call_at(backward)
    made = set() if call is None else {id(node) for one in _made_of(backward, call.func) for node in ast.walk(one)}
    nodes = _near(backward)
    found = [one for one in nodes if one.lineno <= backward.line or "grad" in text_of(backward, one)]
    return sorted(found, key=lambda node: id(node) not in made)


def _made_of(place: SourceLocation, expression: ast.expr) -> list[ast.expr]:
    """``expression``, and what is assigned above ``place`` to the variables in it, and in what these are made of."""
    found, names = [expression], set[str]()
    for one in found:
        for name in sorted(_names(one) - names):
            names.add(name)
            value = last_assigned(place, name)
            found += [value] if value is not None else []
    return found


def _without_division(place: SourceLocation, node: ast.expr | ast.AugAssign, axis: MeshAxis) -> tuple[str, Edit] | None:
    whole = _by_all_ranks(place, node, axis)
    if whole is not None:
        return whole
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and is_size(place, node.right):
        return _rewritten(place, node, f"({text_of(place, node.left)})")
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and is_size(place, node.value):
        return f"leave out {text_of(place, node)} in line {node.lineno}", Remove(location_in(place, node))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
        return None
    if node.func.attr in _DIVIDES and is_size(place, node.args[0]):
        return _rewritten(place, node, text_of(place, node.func.value))
    return None


def _rewritten(place: SourceLocation, node: ast.expr, text: str) -> tuple[str, Edit]:
    """``node`` as ``text``, in which ``{}`` is what it is."""
    before = text_of(place, node)
    after = text.replace("{}", before)
    return f"{after} in place of {before} in line {node.lineno}", Rewrite(location_in(place, node), text)


def _by_all_ranks(place: SourceLocation, node: ast.expr | ast.AugAssign, axis: MeshAxis) -> tuple[str, Edit] | None:
    """A division by ``dist.get_world_size()`` as one by the ranks of the other axes, where there are some."""
    if not dist.is_initialized() or axis.size() == dist.get_world_size():
        return None
    divisor = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else getattr(node, "right", None)
    divides = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    divides |= isinstance(node, ast.Call) and callee(place, node) in _DIVIDES
    group = group_argument(axis)
    if not divides or not isinstance(divisor, ast.Call) or divisor.args or divisor.keywords or not group:
        return None
    if callee(place, divisor) != "get_world_size":
        return None
    others = f"{{}} // {ranks_of(group)}"
    return _rewritten(place, divisor, others if isinstance(node, ast.Call) else f"({others})")
