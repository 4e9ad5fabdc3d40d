"""Are gradients clipped by a norm that each rank has computed of its own pieces? Then every rank scales differently.

The norm of a gradient that is split over an axis is the norm of a piece, and varies there. Multiplied into gradients it
changes the direction of the step, and makes replicate ones differ between ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
import torch.nn.utils.clip_grad

from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import is_internal
from shardwise.interop.gradient_origin import gradient_origin, owner_of
from shardwise.interop.located_call import LocatedCall, axis_text, report
from shardwise.interop.parameter_names import names_of
from shardwise.interop.session import Session
from shardwise.interop.tagging import tag_of, type_of
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import UNKNOWN, V
from shardwise.types.tensor_type import Ground, TensorType

SCALING = ("mul_", "div_", "true_divide_")
_CLIPPING = torch.nn.utils.clip_grad.__file__


def scaled_by_local_norm(
    session: Session, op: str, gradient: torch.Tensor, factors: Sequence[tuple[str, Any]]
) -> TensorType | None:
    """The type of ``gradient`` after SW609 has been reported; None if ``op`` does not scale by such a norm."""
    if op not in SCALING or (parameter := owner_of(gradient)) is None:
        return None
    before = type_of(gradient)
    for label, factor in factors:
        if not isinstance(factor, torch.Tensor) or factor.numel() != 1 or gradient_origin(tag_of(factor)) is None:
            continue
        type = type_of(factor)
        clipping = V in type.placements and _is_clipping()
        axes = [
            axis
            for axis in type.axes
            if type.ground is Ground.ABSENT and type.is_varying(axis) and (before.is_equal(axis) or clipping)
        ]
        if axes:
            _tell(session, op, axes[0], parameter, (label, factor))
            return before.with_placements(dict.fromkeys(axes, UNKNOWN))
    return None


def _is_clipping() -> bool:
    """True while one of torch's functions that clip gradients by a norm runs."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_internal(frame.f_code):
        if frame.f_code.co_filename == _CLIPPING:
            return True
        frame = frame.f_back
    return False


def _tell(session: Session, op: str, axis: Any, parameter: torch.Tensor, factor: tuple[str, Any]) -> None:
    where, size = axis_text(axis), axis.size()
    located = LocatedCall(op, [factor])
    said = Diagnosis(
        "SW609",
        f"the gradient of {names_of([parameter])[0]} is scaled by a norm that differs between the ranks of {where}",
        (f"a norm of gradients that are split over {where} is that of one piece in {size}",),
        (
            "shardwise.train.clip_grad_norm_(parameters, max_norm), which counts every piece once",
            f"all_reduce of the squared norms of the split gradients over {axis_argument(axis)} before the root",
        ),
    )
    report(session, located, said, axis)
