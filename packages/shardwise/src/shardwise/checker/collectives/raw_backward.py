"""Collectives of ``torch.distributed`` in place, of which autograd knows nothing: what a backward pass does with them.

``dist.all_reduce(y)`` leaves no node in the graph: backward passes the gradient of the sum on to the addends as it is.
The sum is replicate, so its gradient is a pending sum, and an addend's gradient should be the whole of it; only that of
a loss, from which every rank starts with 1, is the whole already. A node of our own, which changes nothing, stands
where the collective stood; if a backward pass comes through, it is told. A sum for a log, one whose gradient is the
same on all ranks, and what hands equal values back are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch

from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.fixes.collective_calls import detached_maximum, typed_in_place
from shardwise.interop.tensors.derived_types import derived_type
from shardwise.interop.tensors.own_references import OwnReference
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import keeping_version, no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.raw_collectives import Reducer
from shardwise.types.placement import Placement, R
from shardwise.types.tensor_type import TensorType

from ..diagnosis.gradient_findings import passed_on_unsummed
from ..gradients.autograd_graph import sums_behind
from ..gradients.gradient_hooks import running_pass, telling
from ..gradients.loss import is_loss


class Passage:
    """One collective in place, as a later backward pass will see it; it is told once.

    ``is_whole``  a loss that every rank starts from comes of it, so what arrives is the whole gradient.
    """

    def __init__(self, name: str, tensor: torch.Tensor, axis: MeshAxis, src: Placement, reducer: Reducer | None):
        self.name, self.axis, self.src, self.reducer = name, axis, src, reducer
        self.call = LocatedCall(name, [("tensor", tensor)])
        self.label, self.operand = self.call.name(0), self.call.operand(0, axis)
        self.call.forget_values()
        self.tensor = OwnReference(tensor)
        self.told = self.is_whole = False

    @property
    def sums_addends(self) -> bool:
        """True if ranks that differ have been added up."""
        return self.reducer is not None and self.reducer.name == "sum" and not self.src.is_equal

    def _has_been_told(self, root: torch.Tensor) -> bool:
        """True of a replicate loss, unless it comes of sums."""
        return is_loss(root) and derived_type(root).get(self.axis) is R and sums_behind(root, self.axis) is None

    def tell(self) -> None:
        """Report that the gradient of the result was passed on. Errors: SW606."""
        running, tensor = running_pass(), self.tensor()
        if self.told or self.is_whole or running is None:
            return
        place = R if tensor is None else type_of(tensor).get(self.axis)
        if place is None or place.is_unknown or (place.is_equal and place is not R):
            return  # every rank goes on with the same, and has the whole gradient
        session, this = running
        if any(map(self._has_been_told, this.roots)):
            return
        self.told = True
        with telling(session):
            addends = self.reducer is not None and self.reducer.name in ("sum", "avg") and place is R
            said = passed_on_unsummed(self.name, self.label, self.axis, self.src, addends=addends)
            if addends and not self.src.is_equal and self.name == "all_reduce":
                fixes = typed_in_place(self.call.location, self.label, self.axis, repr(self.src), said.help[:2])
                said = replace(said, fixes=fixes)
            elif self.reducer is not None and self.reducer.name == "max":
                said = replace(said, fixes=detached_maximum(self.call.location, self.label, said.help[-1]))
            report(session, self.call, said, self.axis, operands=(self.operand,))


class PassageContext(Protocol):
    """The context of autograd, as far as ``Unchanged`` uses it."""

    passage: Passage

    def mark_dirty(self, *tensors: torch.Tensor) -> None: ...


class Unchanged(torch.autograd.Function):
    """The identity, in place: the node that a raw collective leaves out."""

    __shardwise_internal__ = True

    @staticmethod
    def forward(ctx: PassageContext, x: torch.Tensor, passage: Passage) -> torch.Tensor:
        ctx.passage = passage
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: PassageContext, *gradients: object) -> object:
        ctx.passage.tell()
        return gradients[0], None


def passages(
    name: str, axis: MeshAxis, tensors: Sequence[torch.Tensor], types: Sequence[TensorType], reducer: Reducer | None
) -> list[Passage | None]:
    """For each tensor that is about to be written in place, what to tell if a gradient comes back; None: nothing.

    ``reducer``  the reduction that the collective makes, if any: a sum of equal values is n times the value.
    """
    multiplies = reducer is not None and reducer.name == "sum"
    left_out: list[Passage | None] = []
    for tensor, type in zip(tensors, types, strict=False):
        changed = type.is_partial(axis) or type.is_varying(axis) or (multiplies and type.is_equal(axis))
        told = changed and _is_recorded(tensor)
        left_out.append(Passage(name, tensor, axis, type.get(axis), reducer) if told else None)
    return left_out


def leave_node(tensor: torch.Tensor, passage: Passage | None) -> None:
    """Put the node of a collective that has been made into the graph."""
    if passage is None:
        return
    with no_torch_function(), keeping_version(tensor):
        try:
            Unchanged.apply(tensor, passage)  # type: ignore[no-untyped-call]
        except RuntimeError:
            return  # a view that autograd lets nobody write to


def _is_recorded(tensor: torch.Tensor) -> bool:
    with no_torch_function():
        return torch.is_grad_enabled() and tensor.grad_fn is not None
