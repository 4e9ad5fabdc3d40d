"""Whose gradients does a wrapper sum while backward runs? ``DistributedDataParallel`` does so for what it wraps.

Its reducer is C++ and shows itself nowhere, but the wrapper says in each forward whether the next backward will
synchronise: not inside ``no_sync()``. The reducer then waits for a gradient of every parameter, once; a backward pass
behind that, of a forward that went past the wrapper (a gradient penalty), is each rank's own.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import communication_hooks, reduced_parameters, tree_leaves
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import cut_along
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import UNKNOWN, Placement, R

from ..state.session import CheckSession
from .autograd_graph import leaves_of


@dataclass
class AwaitedAverage:
    """What the last forward of a wrapper has told its reducer.

    ``synchronises``  gradients that arrive are averaged.
    ``waits_for``     ids of the parameters whose gradients are still to come.
    """

    synchronises: bool
    waits_for: set[int] = field(default_factory=set)


def wrap_forward(find: Callable[[], CheckSession | None], plain: Callable[..., object]) -> object:
    """``DistributedDataParallel.forward``, which notes whether the reducer will run in the backward pass to come."""

    @functools.wraps(plain)
    def forward(self: Any, *args: object, **kwargs: object) -> object:
        session = find()
        result = plain(self, *args, **kwargs)
        if session is not None and torch.is_grad_enabled():
            synchronises = self.require_backward_grad_sync
            session.replicas[self] = AwaitedAverage(synchronises, _used(self, result) if synchronises else set())
        return result

    return forward


def wrapped(wrapper: DistributedDataParallel) -> None:
    """``wrapper`` has been made: its reducer knows no parameter that needs no gradient now, whatever it needs later."""
    _left_out[wrapper] = [one for one in reduced_parameters(wrapper) if not one.requires_grad]


_left_out: weakref.WeakKeyDictionary[DistributedDataParallel, list[torch.Tensor]] = weakref.WeakKeyDictionary()


def _reduced(wrapper: DistributedDataParallel) -> list[torch.Tensor]:
    left_out = set(map(id, _left_out.get(wrapper, ())))
    return [one for one in reduced_parameters(wrapper) if id(one) not in left_out]


def _used(wrapper: DistributedDataParallel, result: object) -> set[int]:
    """Of the parameters that get a gradient: all, unless the wrapper looks for those that the result depends on."""
    trained = {id(one) for one in _reduced(wrapper) if one.requires_grad}
    if not (wrapper.find_unused_parameters or wrapper.static_graph):
        return trained
    leaves = leaves_of(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
    return trained & set(map(id, leaves))


def arrived(session: CheckSession, parameters: Iterable[int]) -> None:
    """Gradients of these parameters (by id) have come; a reducer that has them all is done until the next forward."""
    came = set(parameters)
    for wrapper, reducer in list(session.replicas.items()):
        if reducer.synchronises and not reducer.waits_for.isdisjoint(came):
            reducer.waits_for -= came
            if not reducer.waits_for:
                del session.replicas[wrapper]


def reduced_axes(session: CheckSession, parameters: Mapping[int, object]) -> dict[int, dict[object, Placement]]:
    """For parameters (by id) whose gradients a wrapper averages in this pass: what they become along which axes."""
    reduced: dict[int, dict[Any, Placement]] = {}
    for wrapper, reducer in list(session.replicas.items()):
        if not reducer.synchronises:
            continue
        axis = MeshAxis.of(wrapper.process_group)
        place = _outcome(wrapper)
        for parameter in _reduced(wrapper):
            if id(parameter) in parameters and axis.size() > 1:
                type = cut_along(type_of(parameter), axis)
                reduced[id(parameter)] = dict.fromkeys(parts_of(axis, type), place)
    return reduced


def unsynchronised(session: CheckSession, parameters: Iterable[torch.Tensor], axis: MeshAxis) -> bool:
    """True if a wrapper owes one of these gradients its sum over ``axis`` and ran inside ``no_sync()`` at the last."""
    wanted = {id(parameter) for parameter in parameters}
    return any(
        any(id(parameter) in wanted for parameter in _reduced(wrapper))
        for wrapper, reducer in session.replicas.items()
        if not reducer.synchronises and not MeshAxis.of(wrapper.process_group).isorthogonal(axis)
    )


def _outcome(wrapper: DistributedDataParallel) -> Placement:
    """R after the reducer's own average, a hook of torch or a stand-in of ours; what the program's do is not known."""
    whole = set(dist.get_process_group_ranks(wrapper.process_group))
    hooks = communication_hooks(wrapper)
    known = [_is_known(hook) and all(ranks == whole for ranks in _averages_over(state)) for hook, state in hooks]
    return R if all(known) else UNKNOWN


def _is_known(hook: object) -> bool:
    of_torch = str(getattr(hook, "__module__", "")).startswith(("torch.", "shardwise."))
    return of_torch and "noop" not in getattr(hook, "__name__", "")


def _averages_over(state: object) -> list[set[int]]:
    """The ranks among which a hook with this state averages, now or later; none if the state says nothing of them.

    A hook of torch that is given no group takes that of all ranks, whatever the wrapper's is.
    """
    if state is dist.GroupMember.NON_GROUP_MEMBER:
        return [set()]
    named = [getattr(state, name) for name in ("process_group", "subgroup") if hasattr(state, name)]
    groups = [state] if state is None or isinstance(state, dist.ProcessGroup) else named
    return [set(dist.get_process_group_ranks(group)) for group in groups]
