"""Dims that a reshape merges although an inner one is sharded, and that another reshape splits again.

``x.view(-1, h)`` of [batch, sequence@cp, h] leaves every rank with rows of all samples. That is no shard of the view of
the whole, and one of a tensor that has the same rows in another order: what works row by row, sums or takes the mean
over the rows is the same for it. So the call is no mistake; what is done with the rows is told by their order
(``row_orders``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shardwise.diagnostics.finding import Diagnosis
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.containers import tensors_in
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.interop.torch_compat import no_torch_function
from shardwise.mesh.axis import MeshAxis
from shardwise.op_rules.propagation.call_types import Outcome
from shardwise.op_rules.propagation.reshaped_dims import INTERLEAVES, is_split, merge_of, split_of
from shardwise.op_rules.transition_types import landed
from shardwise.types.placement import UNKNOWN, Shard, V
from shardwise.types.spec import partition_spec_get_shard
from shardwise.types.tensor_type import UNKNOWN_TYPE, TensorType

from ..call.arguments import Op
from ..parts.row_orders import Order, RowMerge, order_of, set_order
from ..state.session import CheckSession
from .judging import judge

RESHAPING = frozenset(["view", "reshape", "view_as", "reshape_as", "view_copy", "flatten", "ravel", "unflatten"])
"""The operators that regroup dims, by the names of their rules."""


@dataclass(frozen=True, slots=True)
class Reshaping:
    """One reshape: what it gives, and in which order the rows of that stand."""

    outcome: Outcome
    order: Order

    def note(self, session: CheckSession, result: object) -> None:
        """Remember the order."""
        for made in tensors_in(result):
            set_order(session, made, self.order)


def is_ordered(op: Op, args: Arguments) -> bool:
    """True for a reshape of rows that stand in an order of their own."""
    return op.rule.op in RESHAPING and bool(args) and isinstance(args[0], torch.Tensor) and bool(order_of(args[0]))


def reshaping_of(
    session: CheckSession, op: Op, func: TorchFunction, args: Arguments, kwargs: Keywords, outcome: Outcome
) -> Reshaping | None:
    """What a call of one of ``RESHAPING`` does to rows, if it merges a sharded dim or they have an order.

    ``outcome``  of the call as any other. Errors: SW223 where merged rows are split in another way.
    """
    x = args[0] if args else None
    if session.local or not isinstance(x, torch.Tensor):
        return None
    order = order_of(x)
    if outcome.refusals:
        merged = _merged(op, func, x, args, kwargs, outcome)
        if merged is not None:
            type, steps = merged
            return Reshaping(_settled(outcome, type), (*order, *steps))
    if not order:
        return None
    last = order[-1]
    if not isinstance(last, RowMerge):
        return Reshaping(outcome, order)
    own, after = _sizes(x), _after(func, args, kwargs)
    shard = partition_spec_get_shard(type_of(x).spec, last.axis)
    if shard is None or not is_split(own, after, shard.dim):
        return Reshaping(outcome, order)
    dim = split_of(own, after, shard.dim, last.merge)
    if dim is None:
        located = LocatedCall(op.name, [("input", x)])
        report(session, located, _split_otherwise(op.name, located.name(0), last), last.axis)
        return Reshaping(_settled(outcome, UNKNOWN_TYPE), ())
    ending = [one for one in order if isinstance(one, RowMerge) and one.merge == last.merge]
    axes = [one.axis for one in ending]
    _, _, whole, _ = judge(session, op, args, kwargs, {id(x): _uncut(type_of(x), axes)})
    return Reshaping(_settled(whole, _cut(type_of(x), whole.type, axes, dim, len(after))), order[: -len(ending)])


def _merged(
    op: Op, func: TorchFunction, x: torch.Tensor, args: Arguments, kwargs: Keywords, outcome: Outcome
) -> tuple[TensorType, list[RowMerge]] | None:
    """The type of the merged rows and how they came about; None if that is not why the call was refused."""
    if any(one.refusal.reason != INTERLEAVES for one in outcome.refusals):
        return None
    own, after = _sizes(x), _after(func, args, kwargs)
    type, steps = outcome.type, list[RowMerge]()
    for axis in (one.axis for one in outcome.refusals):
        shard = partition_spec_get_shard(type_of(x).spec, axis)
        found = None if shard is None else merge_of(own, after, shard.dim)
        if found is None:
            return None
        merge, dim = found
        type = _cut(type_of(x), type, [axis], dim, len(after))
        steps.append(RowMerge(axis, merge))
    return type, steps


def _sizes(x: torch.Tensor) -> tuple[int, ...]:
    with no_torch_function():
        return tuple(x.shape)


def _after(func: TorchFunction, args: Arguments, kwargs: Keywords) -> tuple[int, ...]:
    with no_torch_function(), torch.no_grad():
        result: Any = func(*args, **kwargs)
        return tuple(result.shape)


def _cut(before: TensorType, type: TensorType, axes: Sequence[MeshAxis], dim: int, ndim: int) -> TensorType:
    """``type`` with ``axes`` as the innermost ones that cut ``dim``, and what else ``before`` says of them."""
    places = {**{axis: type.get(axis) for axis in type.axes}, **dict.fromkeys(axes, V)}
    spec = landed(type.spec, ndim, tuple(axes), Shard(dim))
    scale = {**type.scale, **{axis: before.exponent(axis) for axis in axes}}
    return TensorType.of(places, spec, type.ground, type.uneven | (before.uneven & set(axes)), scale)


def _uncut(type: TensorType, axes: Sequence[MeshAxis]) -> TensorType:
    spec = None if type.spec is None else type.spec.without(axes)
    return type.with_spec(spec).with_placements(dict.fromkeys(axes, UNKNOWN))


def _settled(outcome: Outcome, type: TensorType) -> Outcome:
    return replace(outcome, type=type, results=(), refusals=(), sources=(0,) * len(type.axes))


def _split_otherwise(name: str, label: str, step: RowMerge) -> Diagnosis:
    return Diagnosis(
        "SW223",
        f"{name} splits rows of {label} that {step.done}, and not into these dims",
        ("on one device the rows stand in another order, so other rows come together",),
        (step.way_back(label),),
    )
