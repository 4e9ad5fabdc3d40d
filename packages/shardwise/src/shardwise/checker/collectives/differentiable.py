"""Collectives that autograd knows: for which operands and reductions is their backward the derivative?

Backward of a gather or an exchange hands every rank the gradients of its own piece, summed: the gradient of a replicate
or varying operand, and never that of an invariant one, which must be the same on all ranks. The functions of
``torch.distributed.nn`` take any reduction and derive some of them as if they were the sum.
Source: ``torch.distributed.nn.functional`` and ``torch.distributed._functional_collectives``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import takes_gradient
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.op_rules.raw_collectives import REDUCERS
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import I
from shardwise.types.tensor_type import TensorType

from ..diagnosis.collective_findings import wrong_source
from ..state.session import CheckSession

_DERIVED = {"_AllReduce": ("sum", "avg"), "_Reduce": ("sum",), "_Reduce_Scatter": ("sum",)}
"""The reductions that the backward of a function of ``torch.distributed.nn`` is right for."""


def check_function(session: CheckSession, cls: type, args: Sequence[object]) -> None:
    """Look at a call of an autograd function of ``torch.distributed.nn``. Errors: SW201, SW210."""
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    groups = [one for one in args if isinstance(one, dist.ProcessGroup)]
    axis = MeshAxis.of(groups[0] if groups else dist.group.WORLD)
    name = cls.__name__.removeprefix("_").lower()
    asked = next((one for one in args if isinstance(one, (dist.ReduceOp, dist.ReduceOp.RedOpType))), None)
    if axis.size() == 1:
        return
    for tensor in tensors:
        type = type_of(tensor)
        if not _receives_gradient(tensor) or not parts_of(axis, type):
            continue
        if asked is not None and not any(_is(asked, known) for known in _DERIVED.get(cls.__name__, REDUCERS)):
            located = LocatedCall(name, [("tensor", tensor)])
            report(session, located, _not_derived(name, located.name(0), axis, _word(asked)), axis)
            return
        check_operand(session, name, axis, tensor, type)


def check_operand(session: CheckSession, name: str, axis: MeshAxis, tensor: torch.Tensor, type: TensorType) -> None:
    """Report an operand that is invariant and will receive a gradient. Errors: SW201."""
    if not _receives_gradient(tensor):
        return
    for one in parts_of(axis, type):
        if type.get(one) is I and not type.ground.is_constant:
            located = LocatedCall(name, [("tensor", tensor)])
            label = located.name(0)
            fact = f"backward gives every rank the gradient of its own part of {label}, and not one that all share"
            way = f"convert({label}, {axis_argument(one)}, src=I, dst=R) first, whose backward sums these gradients"
            said = wrong_source(name, label, "R (replicate) or V (varying)", axis_text(one), I, (fact,), (way,))
            report(session, located, said, one)


def check_passed_on(session: CheckSession, name: str, axis: MeshAxis, tensor: torch.Tensor, type: TensorType) -> None:
    """Report an operand of a functional broadcast that will receive its result's gradient as it is. Errors: SW210."""
    for one in parts_of(axis, type):
        if _receives_gradient(tensor) and (type.is_varying(one) or type.get(one) is I):
            located = LocatedCall(name, [("tensor", tensor)])
            report(session, located, _not_derived(name, located.name(0), one, ""), one)


def _receives_gradient(tensor: torch.Tensor) -> bool:
    return takes_gradient(tensor) and torch.is_grad_enabled()


def _is(asked: object, name: str) -> bool:
    return bool(asked == getattr(dist.ReduceOp, name.upper()))


def _word(asked: object) -> str:
    return next((name.upper() for name in REDUCERS if _is(asked, name)), str(asked))


def _not_derived(name: str, label: str, axis: MeshAxis, reduction: str) -> Diagnosis:
    what = f"{name} by {reduction}" if reduction else name
    fact = f"torch derives it as if it were a {'sum' if reduction else 'function of the own tensor alone'}"
    return Diagnosis(
        "SW210",
        f"{what} of {label} over {axis_text(axis)} has no right backward, and {label} would receive a gradient",
        (fact,),
        (f"{name}({label}.detach(), ...), if no gradient is meant",),
    )
