"""Are gradients clipped by a norm that each rank has computed of its own pieces? Then every rank scales differently.

The norm of a gradient that is split over an axis is the norm of a piece, and varies there. Multiplied into gradients it
changes the direction of the step, and makes replicate ones differ between ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from shardwise.interop.autograd.gradient_origin import gradient_origin, owner_of
from shardwise.interop.autograd.parameter_names import names_of
from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.fixes.norms import clipped_by_ours, norm_by_ours
from shardwise.interop.running.session import Session
from shardwise.interop.running.silence import is_running
from shardwise.interop.tensors.tagging import tag_of, type_of
from shardwise.types.placement import UNKNOWN, V
from shardwise.types.tensor_type import Ground, TensorType

from ..diagnosis.step_findings import local_gradient_norm
from .dtensor_scales import CLIPPING

SCALING = ("mul_", "div_", "true_divide_")


def scaled_by_local_norm(
    session: Session, op: str, gradient: torch.Tensor, factors: Sequence[tuple[str, object]]
) -> TensorType | None:
    """The type of ``gradient`` after SW609 has been reported; None if ``op`` does not scale by such a norm."""
    if op not in SCALING or (parameter := owner_of(gradient)) is None:
        return None
    before = type_of(gradient)
    for label, factor in factors:
        if not isinstance(factor, torch.Tensor) or factor.numel() != 1 or gradient_origin(tag_of(factor)) is None:
            continue
        type = type_of(factor)
        clipping = V in type.placements and is_running(CLIPPING)
        axes = [
            axis
            for axis in type.axes
            if type.ground is Ground.ABSENT and type.is_varying(axis) and (before.is_equal(axis) or clipping)
        ]
        if axes:
            located = LocatedCall(op, [("the gradient", gradient), (label, factor)])
            if located.places[1] is None:
                located.names[1] = ("the norm", None)  # it is a value of torch's own code
            said = local_gradient_norm(names_of([parameter])[0], axes[0])
            fixes = clipped_by_ours(located.location, said.help[0])
            by_hand = () if fixes else norm_by_ours(located.names[1][1])
            said = replace(said, help=(*(fix.help for fix in by_hand), *said.help), fixes=(*fixes, *by_hand))
            report(session, located, said, axes[0], operands=[located.operand(1, axes[0])])
            return before.with_placements(dict.fromkeys(axes, UNKNOWN))
    return None
