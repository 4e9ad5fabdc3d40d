"""What happens around one run of the autograd engine? Conflicts are told before it, gradients are typed after it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from shardwise.diagnostics.source import user_site
from shardwise.interop.autograd.gradient_origin import GradientOrigin
from shardwise.interop.autograd.gradients import gradient_of, is_unseen, leave_unseen, waive
from shardwise.interop.autograd.parameter_names import gradient_name
from shardwise.interop.running.session import current, this_thread
from shardwise.interop.tensors.dtensors import is_dtensor
from shardwise.interop.tensors.tagging import Tag, pieces_of, set_tag, type_of
from shardwise.interop.torch_compat import hook_tables, no_torch_function, same_memory
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.regions import cut_along, put_together
from shardwise.types.placement import P, Placement
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from ..operators import scale_lost
from ..operators.in_flight import check_tensor
from ..state.session import CheckSession
from .autograd_graph import leaves_of
from .conflicts import note_reached, refuse_conflicts
from .gradient_hooks import adopt
from .gradient_types import BackwardPass, GradientArrival, arrive, dual, root_scale
from .replicas import arrived, reduced_axes
from .sharded_gradients import type_sharded
from .unseen_writes import UnseenWrites


def wrap_engine(plain: Callable[..., object]) -> Callable[..., object]:
    """The function through which every backward pass runs, with typed gradients on threads that check."""

    def run(roots: Any, *args: object, accumulate_grad: bool = False, **kwargs: object) -> object:
        session = this_thread()
        if not isinstance(session, CheckSession):
            return plain(roots, *args, accumulate_grad=accumulate_grad, **kwargs)
        inputs: Any = args[3] if len(args) > 3 else kwargs.get("inputs") or ()
        reached = leaves_of(roots, inputs) if accumulate_grad else []
        if current() is None:
            result = plain(roots, *args, accumulate_grad=accumulate_grad, **kwargs)
            for variable in reached:
                leave_unseen(variable)
            return result
        seeds: Any = args[0] if args else kwargs.get("grad_tensors") or ()
        with running(session, reached, roots, seeds), UnseenWrites(session):
            return plain(roots, *args, accumulate_grad=accumulate_grad, **kwargs)

    return run


@contextlib.contextmanager
def running(
    session: CheckSession, reached: Sequence[torch.Tensor], roots: Iterable[object] = (), seeds: Iterable[object] = ()
) -> Iterator[BackwardPass]:
    """Give the gradients of ``reached`` their types when the block, a backward pass, is over."""
    pairs = [(root, seed) for root, seed in zip_longest(roots, seeds) if isinstance(root, torch.Tensor)]
    this = BackwardPass(roots=[root for root, _ in pairs])
    this.scale = root_scale(session, this.roots, [seed for _, seed in pairs])
    scale_lost.collect(session, this.roots, [axis for axis, exponent in this.scale.items() if exponent is None])
    if session.in_flight:
        for variable in reached:
            if (summed := gradient_of(variable)) is not None:
                check_tensor(session, "backward", summed, writes=True, label=functools.partial(gradient_name, variable))
    note_reached(session, reached)
    foreign = {id(variable) for variable in adopt(reached)}
    foreign |= {id(variable) for variable in reached if variable in session.kept_elsewhere}
    for variable in reached:
        gradient = gradient_of(variable)
        before = None if gradient is None else type_of(gradient)
        type = UNKNOWN_TYPE if id(variable) in foreign else dual(type_of(variable), this.scale)
        this.arrivals[id(variable)] = GradientArrival(variable, type, before, unseen=is_unseen(variable))
    reduced = reduced_axes(session, this.arrivals)
    for key, axes in reduced.items():
        this.arrivals[key].before = _to_average(this.arrivals[key].before, axes)
    # A wrapper that averages over its ranks keeps what was equal before.
    kept = [arrival for key, arrival in this.arrivals.items() if key not in reduced]
    hooked = [(arrival, _summed_before(arrival)) for arrival in kept if _has_hooks(arrival.variable)]
    _refuse_conflicts(session, [(one, _summed_before(one)) for one in kept if not _has_hooks(one.variable)])
    session.passes.append(this)
    try:
        yield this
    finally:
        session.passes.pop()
    _refuse_conflicts(session, hooked)  # by now their hooks have said what comes to them
    this.arrived |= this.arrivals.keys()
    if session.passes:  # a part of the pass around it, as reentrant checkpoints run
        session.passes[-1].arrived |= this.arrived
    else:
        arrived(session, this.arrived)
    type_sharded(this.arrivals, this.scale)
    for key, arrival in this.arrivals.items():
        arrive(arrival)
        gradient = gradient_of(arrival.variable)
        if gradient is not None and any(same_memory(gradient, tensor) for tensor in this.reduced):
            waive(arrival.variable)
        if key in reduced:
            _reduce(arrival.variable, reduced[key])


def wrap_allreduce(plain: Callable[..., object]) -> Callable[..., object]:
    """``ProcessGroup.allreduce``: what hooks reduce that no function mode shows has no known type afterwards."""

    @functools.wraps(plain)
    def allreduce(self: object, tensors: object, *args: object, **kwargs: object) -> object:
        session = current()
        if isinstance(session, CheckSession) and session.passes and not session.in_typed_code:
            session.passes[-1].reduced += [tensors] if isinstance(tensors, torch.Tensor) else tensors
        return plain(self, tensors, *args, **kwargs)

    return allreduce


def _has_hooks(variable: torch.Tensor) -> bool:
    """True if hooks on the tensor itself may change what comes to its gradient."""
    with no_torch_function():
        return bool(hook_tables(variable)[0])


def _refuse_conflicts(session: CheckSession, arrivals: Iterable[tuple[GradientArrival, Sequence[MeshAxis]]]) -> None:
    """Report a pending sum that is added to one that has been made already; given with the axes of that."""
    refuse_conflicts(
        session,
        [
            (arrival.variable, axis)
            for arrival, axes in arrivals
            for axis in axes
            if arrival.contribution.is_partial(axis)
        ],
    )


def _summed_before(arrival: GradientArrival) -> list[MeshAxis]:
    """The axes along which the gradient is equal on every rank and a pending sum is about to come to it."""
    gradient, contribution = gradient_of(arrival.variable), arrival.contribution
    if arrival.before is None or gradient is None:
        return []
    types = [piece.type for piece in pieces_of(gradient)] or [arrival.before]
    return [
        axis
        for axis in contribution.partial_axes
        if any(type.ground is Ground.ABSENT and type.is_equal(axis) for type in types)
    ]


def _to_average(before: TensorType | None, axes: Iterable[object]) -> TensorType | None:
    """A gradient that is there when a wrapper averages: what is equal is a sum of n of it, whose average it is again.

    before {dp: R}/n, the average of an earlier backward pass    taken for {dp: P}, to which this pass adds {dp: P}
    """
    if before is None or before.ground is not Ground.ABSENT:
        return before
    equal = {axis: e for axis in axes if before.is_equal(axis) and (e := before.exponent(axis)) is not None}
    return before.with_placements(dict.fromkeys(equal, P)).rescaled({axis: e + 1 for axis, e in equal.items()})


def _reduce(variable: torch.Tensor, axes: Mapping[Any, Placement]) -> None:
    """What a wrapper has done to the gradient along ``axes`` while the pass ran."""
    gradient = gradient_of(variable)
    if gradient is None or is_dtensor(gradient):
        return
    type, mesh = type_of(gradient), current_entry()
    for axis in axes:
        type = cut_along(type, axis)
    changes = {axis: place for axis, place in axes.items() if axis in type and not type.is_varying(axis)}
    if changes and type.ground is Ground.ABSENT:
        # A pending sum is averaged; what was equal already is as it was.
        averaged = {axis: e - 1 for axis in changes if type.is_partial(axis) and (e := type.exponent(axis)) is not None}
        reduced = type.with_placements(changes).rescaled(averaged)
        after = put_together(reduced, () if mesh is None else mesh.ordered_axes)
        set_tag(gradient, Tag(after, GradientOrigin(user_site(), variable)))
