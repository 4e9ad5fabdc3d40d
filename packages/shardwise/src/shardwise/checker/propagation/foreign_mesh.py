"""Calls whose operands speak of another mesh than the current one: gradients and updates may keep to theirs.

Parameters of experts are typed on the expert mesh, and updated beside all others under the dense one. A forward pass
has to say with ``reinterpret_mesh`` how it gets from one to the other; an update, or the norm of a gradient, moves
nothing.

Groups of neighbours that a program makes for itself cut an axis of the mesh into parts, and what they exchange is typed
along each. Where the program says no types it is not asked to say how such a tensor lies along the whole axis:

    out   f32[2, 3] {dp: V}               what is so along the whole of dp is so along each part of it
    mean  f32[3] {across: V, node: R}     after a sum over the two ranks of a node
    out - mean  {across: V, node: V}      that is V over dp
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import CurrentMesh
from shardwise.mesh.regions import cut_along, put_together, reinterpret
from shardwise.op_rules.propagation.call_types import Outcome, propagate
from shardwise.op_rules.propagation.dim_labels import Call
from shardwise.op_rules.propagation.local import Weak
from shardwise.op_rules.propagation.operand import Bound
from shardwise.op_rules.propagation.placer import Scope
from shardwise.op_rules.schema import OpRule
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType


def judged_elsewhere(
    rule: OpRule,
    operands: Sequence[Bound],
    values: Sequence[object],
    mesh: CurrentMesh | None,
    outcome: Outcome,
    *,
    strict: bool,
    blocked: str | None,
    scope: Scope | None,
    call: Call,
) -> Outcome:
    """``outcome``, which refuses nothing but a foreign mesh, or a better one if the call is part of an update, or the
    foreign axes are parts of those of ``mesh`` and types need not be said (not ``strict``).

    An update is judged on the mesh of one operand if all others can be said on it; if not, nothing is known.
    ``blocked``, ``scope``, ``call``  as in ``propagate``.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    update = any(_is_update(tensor) for tensor in tensors)
    constant = all(type_of(tensor).ground.is_constant for tensor in tensors)
    if (update or constant) and not any(operand.grad for operand in operands):
        for type in dict.fromkeys(operands[at].type for refusal in outcome.refusals for at in refusal.refusal.culprits):
            moved = _on(type.axes, operands) if isinstance(type, TensorType) else None
            if moved is not None:
                return replace(propagate(rule, moved, None, strict), elsewhere=True)
        if update:
            return Outcome(UNKNOWN_TYPE, checked=False, elsewhere=True)
    moved = None if mesh is None or strict else _in_parts(mesh, operands)
    if mesh is None or moved is None:
        return outcome
    found = propagate(rule, moved, None, strict, blocked=blocked, scope=scope, call=call)
    whole = mesh.ordered_axes
    return replace(
        found,
        type=put_together(found.type, whole),
        results=tuple(put_together(type, whole) for type in found.results),
        sources=(),
        origins=(),
        elsewhere=True,
    )


def _in_parts(mesh: CurrentMesh, operands: Sequence[Bound]) -> list[Bound] | None:
    """The operands with their types said along the same parts of the axes of ``mesh``; None if there are none."""
    types = [operand.type for operand in operands if isinstance(operand.type, TensorType)]
    foreign = {axis for type in types for axis in type.axes if axis not in mesh.axes}
    if any(type.ground is Ground.UNKNOWN for type in types) or not all(_is_part(axis, mesh) for axis in foreign):
        return None
    cut = [replace(operand, type=_cut(operand.type, foreign)) for operand in operands]
    axes = {axis for operand in cut if isinstance(operand.type, TensorType) for axis in operand.type.axes}
    apart = all(one is other or one.isorthogonal(other) for one in axes for other in axes)
    return cut if apart else None


def _is_part(axis: MeshAxis, mesh: CurrentMesh) -> bool:
    return any(axis <= whole for whole in mesh.axes)


def _cut(type: TensorType | Weak, parts: Iterable[MeshAxis]) -> TensorType | Weak:
    if isinstance(type, TensorType):
        for part in sorted(parts, key=lambda axis: axis.sort_key):
            type = cut_along(type, part)
    return type


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
