"""Calls whose operands speak of another mesh than the current one: gradients and updates may keep to theirs.

Parameters of experts are typed on the expert mesh, and updated beside all others under the dense one. A forward pass
has to say with ``reinterpret_mesh`` how it gets from one to the other; an update, or the norm of a gradient, moves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import reinterpret
from shardwise.op_rules.propagation.call_types import Outcome, propagate
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.schema import OpRule
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType


def judged_elsewhere(
    rule: OpRule, operands: Sequence[Bound], values: Sequence[object], strict: bool, outcome: Outcome
) -> Outcome:
    """``outcome``, which refuses nothing but a foreign mesh, or a better one if the call is part of an update.

    The call is then judged on the mesh of one operand if all others can be said on it; if not, nothing is known.
    """
    if any(operand.grad for operand in operands):
        return outcome
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    update = any(_is_update(tensor) for tensor in tensors)
    if not update and not all(type_of(tensor).ground.is_constant for tensor in tensors):
        return outcome
    for type in dict.fromkeys(operands[at].type for refusal in outcome.refusals for at in refusal.refusal.culprits):
        moved = _on(type.axes, operands) if isinstance(type, TensorType) else None
        if moved is not None:
            return replace(propagate(rule, moved, None, strict), elsewhere=True)
    return Outcome(UNKNOWN_TYPE, checked=False, elsewhere=True) if update else outcome


def _on(axes: Iterable[MeshAxis], operands: Sequence[Bound]) -> list[Bound] | None:
    """The operands with their types said on ``axes``; None if that cannot be."""
    try:
        return [
            replace(operand, type=reinterpret(operand.type, axes))
            if isinstance(operand.type, TensorType) and not operand.type.ground.is_constant
            else operand
            for operand in operands
        ]
    except SpmdTypeError:
        return None


def _is_update(tensor: torch.Tensor) -> bool:
    """True for a parameter, a gradient, and what is made of gradients."""
    return gradient_origin(tag_of(tensor)) is not None or (tensor.requires_grad and tensor.is_leaf)
