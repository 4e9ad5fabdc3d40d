"""Whose gradients does a wrapper sum while backward runs? ``DistributedDataParallel`` does so for what it wraps.

Its reducer is C++ and shows itself nowhere, but the wrapper says in each forward whether the next backward will
synchronise: not inside ``no_sync()``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import communication_hooks
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import cut_along
from shardwise.op_rules.transition_types import parts_of
from shardwise.types.placement import UNKNOWN, Placement, R

from ..state.session import CheckSession


def wrap_forward(find: Callable[[], CheckSession | None], plain: Callable[..., object]) -> object:
    """``DistributedDataParallel.forward``, which notes whether the reducer will run in the backward pass to come."""

    @functools.wraps(plain)
    def forward(self: Any, *args: object, **kwargs: object) -> object:
        session = find()
        if session is not None:
            session.replicas[self] = torch.is_grad_enabled() and self.require_backward_grad_sync
        return plain(self, *args, **kwargs)

    return forward


def reduced_axes(session: CheckSession, parameters: Mapping[int, object]) -> dict[int, dict[object, Placement]]:
    """For parameters (by id) whose gradients a wrapper averages in this pass: what they become along which axes."""
    reduced: dict[int, dict[Any, Placement]] = {}
    for wrapper, synchronises in list(session.replicas.items()):
        if not synchronises:
            continue
        axis = MeshAxis.of(wrapper.process_group)
        place = _outcome(wrapper)
        for name, parameter in wrapper.module.named_parameters():
            if id(parameter) in parameters and name not in wrapper.parameters_to_ignore and axis.size() > 1:
                type = cut_along(type_of(parameter), axis)
                reduced[id(parameter)] = dict.fromkeys(parts_of(axis, type), place)
    return reduced


def unsynchronised(session: CheckSession, parameters: Iterable[torch.Tensor], axis: MeshAxis) -> bool:
    """True if a wrapper owes one of these gradients its sum over ``axis`` and ran inside ``no_sync()`` at the last."""
    wanted = {id(parameter) for parameter in parameters}
    return any(
        any(id(parameter) in wanted for parameter in wrapper.module.parameters())
        for wrapper, synchronises in session.replicas.items()
        if not synchronises and not MeshAxis.of(wrapper.process_group).isorthogonal(axis)
    )


def _outcome(wrapper: DistributedDataParallel) -> Placement:
    """R after the reducer's own average, a hook of torch or a stand-in of ours; what the program's do is not known."""
    hooks = [hook for hook, _ in communication_hooks(wrapper)]
    known = [str(getattr(hook, "__module__", "")).startswith(("torch.", "shardwise.")) for hook in hooks]
    return R if all(known) and not any("noop" in getattr(hook, "__name__", "") for hook in hooks) else UNKNOWN
