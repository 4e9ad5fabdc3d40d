"""Pending sums that are added to gradients which have been summed already: refused at once, or when they are used.

Between micro-batches that is a mistake at the backward pass. Behind a step it may be none: the loss of a generator
reaches the parameters of the critic, whose gradients are zeroed before they are wanted again. So a conflict in a
gradient with which a step has been taken waits for the next step that takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from shardwise.interop.autograd.gradients import gradient_of
from shardwise.interop.calls.located_call import LocatedCall
from shardwise.interop.tensors.dtensors import local_part
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import Ground

from ..diagnosis.gradient_findings import accumulation_conflict
from ..state.session import CheckSession


def refuse_conflicts(session: CheckSession, conflicts: Iterable[tuple[torch.Tensor, MeshAxis]]) -> None:
    """Report parameters to whose gradients, summed over an axis, a pending sum is added; or keep that in mind."""
    by_axis: dict[MeshAxis, list[torch.Tensor]] = {}
    located = None
    for parameter, axis in conflicts:
        if gradient_of(parameter) in session.stepped:
            located = located or LocatedCall("backward", [])
            session.conflicts[parameter] = axis, located
        else:
            by_axis.setdefault(axis, []).append(parameter)
    for axis, parameters in by_axis.items():
        accumulation_conflict(session, axis, parameters)


def note_reached(session: CheckSession, parameters: Iterable[torch.Tensor]) -> None:
    """A backward pass is about to reach these: what has been zeroed before it is a gradient that begins anew."""
    for parameter in parameters:
        gradient = gradient_of(parameter)
        if gradient is None or _is_zero(gradient):
            if parameter in session.conflicts:
                del session.conflicts[parameter]
            if gradient in session.stepped:
                del session.stepped[gradient]


def note_step(session: CheckSession, parameters: Collection[torch.Tensor]) -> None:
    """A step is about to be taken with the gradients of these; report the conflicts in them."""
    waiting: dict[tuple[MeshAxis, int], tuple[LocatedCall, list[torch.Tensor]]] = {}
    for parameter in parameters:
        gradient = gradient_of(parameter)
        if parameter not in session.conflicts or gradient is None:
            continue
        axis, located = session.conflicts[parameter]
        del session.conflicts[parameter]
        if not _is_zero(gradient):
            waiting.setdefault((axis, id(located)), (located, []))[1].append(parameter)
    for parameter in parameters:
        session.stepped[gradient_of(parameter)] = True
    for (axis, _), (located, conflicting) in waiting.items():
        accumulation_conflict(session, axis, conflicting, located)


def _is_zero(gradient: torch.Tensor) -> bool:
    return type_of(local_part(gradient)).ground is Ground.ZERO
