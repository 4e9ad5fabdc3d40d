"""Forward-mode derivatives: a tangent has the type of its tensor, where it goes in and where it comes out.

A tangent is a small change of the value that its tensor denotes. Every rule for operators and transitions is linear in
the change, so what is true of the tensor's type is true of its tangent's: equal on all ranks for R and I, each rank's
own for V and S(i), an addend for P. Source: docs/semantics.md, Law 2.3.

    x: P, tangent t: P         x_0 + x_1 changes by t_0 + t_1
    x: P, tangent ones         x_0 + x_1 changes by 2, where one device changes by 1
"""

from __future__ import annotations

from typing import Any

import torch

from shardwise.interop.calls.located_call import LocatedCall, report
from shardwise.interop.tensors.tagging import Tag, set_tag, tag_of, type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.types.placement import R
from shardwise.types.tensor_type import Ground

from ..diagnosis.loss_findings import tangent_not_alike
from ..state.session import CheckSession
from .gradient_types import is_gradient_of


def make_dual(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """``forward_ad.make_dual`` and ``torch.func.jvp``: the tensor with its tangent. Errors: SW630."""
    given = dict(zip(("tensor", "tangent"), args, strict=False)) | dict(kwargs)
    primal, tangent = given["tensor"], given["tangent"]
    if isinstance(primal, torch.Tensor) and isinstance(tangent, torch.Tensor):
        _check_tangent(session, primal, tangent)
    result = func(*args, **kwargs)
    _give(result, primal)
    return result


def unpack_dual(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
    """``forward_ad.unpack_dual``: the tensor and its tangent, or None."""
    parts: Any = func(*args, **kwargs)
    dual = args[0] if args else kwargs["dual"]
    for part in parts:
        _give(part, dual)
    return parts


def _give(part: object, whole: object) -> None:
    tag = tag_of(whole)
    if tag is not None and isinstance(part, torch.Tensor) and part is not whole:
        set_tag(part, Tag(tag.current(), tag.origin))


def _check_tangent(session: CheckSession, primal: torch.Tensor, tangent: torch.Tensor) -> None:
    own, given = type_of(primal), type_of(tangent)
    if own.ground is not Ground.ABSENT or given.ground in (Ground.ZERO, Ground.UNKNOWN, Ground.EMPTY):
        return
    session.checked += bool(own.axes)
    located = LocatedCall("make_dual", [("tensor", primal), ("tangent", tangent)])
    for axis, place in zip(own.axes, own.placements, strict=True):
        found = R if given.ground.is_constant else given.get(axis)
        if place.is_unknown or found is None or found.is_unknown or is_gradient_of(place, found):
            continue
        said = tangent_not_alike(located.name(0), located.name(1), axis, place, found)
        report(session, located, said, axis, operands=located.shown(axis))
