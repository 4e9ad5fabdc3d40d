"""Sums of gradients that are equal on all ranks: n times too much, unless they are divided by n before the step.

Ranks that average what they compute alike change nothing. A program may sum all of its gradients in one loop, and
divide them in another, so the scale with which a gradient enters the optimizer tells whether the sum was one too many.
"""

from __future__ import annotations

import torch

from shardwise.interop.autograd.gradients import gradient_type
from shardwise.mesh.axis import MeshAxis
from shardwise.types.tensor_type import TensorType

from ..state.session import CheckSession


def may_be_divided(session: CheckSession, type: TensorType, axis: MeshAxis) -> bool:
    """True where a finding can wait for the step, which knows whether the sum of a gradient of ``type`` is divided."""
    return session.collector is not None and not session.strict and type.is_equal(axis)


def stands_unless_divided(session: CheckSession, parameter: torch.Tensor, axis: MeshAxis, told: int) -> None:
    """What is found since ``told`` findings says that the gradient of ``parameter`` is summed over ``axis``, and owes
    no sum. Asked where ``may_be_divided``.
    """
    assert session.collector is not None
    session.sums_not_owed.append((parameter, axis, session.collector.added_since(told)))


def is_told(session: CheckSession, parameter: torch.Tensor, axis: MeshAxis) -> bool:
    """Another sum of the gradient of ``parameter`` over ``axis`` waits for the step: of one mistake no more is said."""
    return any(one is parameter and over == axis for one, over, _ in session.sums_not_owed)


def before_sum(type: TensorType, axis: MeshAxis) -> TensorType:
    """The type that is summed: on the scale of one device, as what comes of it is measured by that."""
    return type.with_scale({**{one: type.exponent(one) for one in type.axes}, axis: type.exponent(axis) or 0})


def settle(session: CheckSession, parameter: torch.Tensor) -> set[MeshAxis]:
    """A step is about to be taken with the gradient of ``parameter``: withdraws the findings if it has been divided
    since; gives the axes along which they stand, so that no more need be said."""
    own = [waiting for waiting in session.sums_not_owed if waiting[0] is parameter]
    session.sums_not_owed = [waiting for waiting in session.sums_not_owed if waiting[0] is not parameter]
    standing: set[MeshAxis] = set()
    for _, axis, findings in own:
        type = gradient_type(parameter)
        if axis in type and type.is_equal(axis) and type.exponent(axis) == 0 and session.collector is not None:
            session.collector.withdraw(findings)
        else:
            standing.add(axis)
    return standing
