"""Values on another scale than one device's, by the number of ranks: a factor too many or too few."""

from __future__ import annotations

import ast

import torch

from shardwise.diagnostics.fix import Edit, Fix, Rewrite
from shardwise.diagnostics.syntax import nodes_in
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import Power

from ..autograd.gradient_origin import gradient_origin
from ..calls.located_call import LocatedCall, provenance
from ..tensors.tagging import tag_of
from .expressions import group_argument, is_size, ranks_of, text_of
from .gradient_scales import scaled


def rescaled(located: LocatedCall, position: int, axis: MeshAxis, exponent: Power, help: str) -> tuple[Fix, ...]:
    """What brings an operand of this exponent to the scale of one device.

    A gradient where it was made; any other value by a factor where it is used.
    """
    (_, span), value, group = located.names[position], located.values[position], group_argument(axis)
    if isinstance(value, torch.Tensor) and gradient_origin(tag_of(value)) is not None:
        return scaled([value], axis, 1 if exponent > 0 else -1) if isinstance(exponent, int) else ()
    if span is None or group is None or not isinstance(exponent, int):
        return ()
    ranks = ranks_of(group)
    power = "" if abs(exponent) == 1 else f" ** {abs(exponent)}"
    edit: Edit = Rewrite(span, f"({{}} {'/' if exponent > 0 else '*'} {ranks}{power})")
    return (Fix(help, (edit,)),)


def multiplied_by_size(located: LocatedCall, position: int, axis: MeshAxis) -> bool:
    """Is a variable multiplied by a number of ranks between where it got its placement and the call?"""
    (name, _), location = located.names[position], located.location
    made = [hop.location for hop in provenance(located.values[position], axis)]
    if location is None or not made or made[0] is None or made[0].file != location.file:
        return False
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign)
        and isinstance(node.op, ast.Mult)
        and made[0].line < node.lineno < location.line
        and any(text_of(location, one) == name and is_size(location, other) for one, other in _sides(node))
        for node in nodes_in(location.file)
    )


def _sides(node: ast.BinOp | ast.AugAssign) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.AugAssign):
        return [(node.target, node.value)]
    return [(node.left, node.right), (node.right, node.left)]
