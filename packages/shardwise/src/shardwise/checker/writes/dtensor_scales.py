"""What a call between DTensors does to the scale of a gradient: ``grad.div_(n)`` and what optimizers clip with.

Operators between DTensors are their own business, and their placements say nothing of a factor. But the gradients that
``fully_shard`` hands out are DTensors, whose local tensors carry the scale that the wrapper has left them with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.utils.clip_grad

from shardwise.interop.autograd.gradient_origin import gradient_origin
from shardwise.interop.running.silence import codes_of, is_running
from shardwise.interop.tensors.dtensors import is_dtensor, local_part
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of
from shardwise.interop.torch_call import Arguments, Keywords
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.local import Given, Refusal
from shardwise.op_rules.propagation.operand import Bound, exponent_along
from shardwise.op_rules.propagation.scale import scale_rule
from shardwise.types.placement import V
from shardwise.types.tensor_type import Exponent, TensorType

from ..call.arguments import Op

CLIPPING = codes_of(torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grads_with_norm_)
"""The code of torch's functions that clip gradients by a norm: at rest their coefficient is 1."""


def rescaled_in_place(op: Op, args: Arguments, kwargs: Keywords) -> None:
    """The first argument has been written by ``op``: if it is a gradient of known scale, it has another one now."""
    gradient = args[0] if args else None
    if not isinstance(gradient, torch.Tensor) or not is_dtensor(gradient):
        return
    local = local_part(gradient)
    tag = tag_of(local)
    if tag is None or gradient_origin(tag) is None or is_running(CLIPPING):
        return
    type = tag.current()
    known = [axis for axis in type.axes if type.exponent(axis) is not None]
    if known:
        operands, _ = op.bind([local, *map(_local, args[1:])], {name: _local(value) for name, value in kwargs.items()})
        changes = {axis: _after(op, axis, operands) for axis in known}
        set_tag(local, Tag(type.rescaled(changes), tag.origin))


def _local(value: object) -> object:
    return local_part(value) if isinstance(value, torch.Tensor) and is_dtensor(value) else value


def _after(op: Op, axis: MeshAxis, operands: Sequence[Bound]) -> Exponent:
    """The exponent of the result along ``axis``; what another DTensor has brought nobody knows."""
    givens = [
        Given(operand.param, V, operand.index, number=operand.number, exponent=_exponent(axis, operand))
        for operand in operands
    ]
    found = scale_rule(op.rule, givens, V)
    return None if isinstance(found, Refusal) else found


def _exponent(axis: MeshAxis, operand: Bound) -> object:
    if isinstance(operand.type, TensorType) and axis not in operand.type and operand.type.ground.is_constant:
        return 0
    return exponent_along(axis, operand, operand.type)


def elements_rescaled(op: Op, calls: Sequence[tuple[Arguments, Keywords]]) -> None:
    """The same of an operator over lists, whose calls these are."""
    for args, kwargs in calls:
        rescaled_in_place(op, args, kwargs)
