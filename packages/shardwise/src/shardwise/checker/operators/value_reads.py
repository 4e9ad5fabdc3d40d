"""How is a call checked that hands a tensor's value to Python?

A pending sum has no value yet; a varying one divides the ranks, which is a hang waiting for the next collective. A
pending average may be printed: what each rank has is the mean of its own share, as of the loss of its batch. Where the
program writes no types, so may a pending sum, of which each rank logs its own addend: that is a number that is P.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from shardwise.diagnostics.decisions import decides
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.source import is_library_calling, user_location, user_site
from shardwise.interop.calls.located_call import LocatedCall, axis_text, report
from shardwise.interop.fixes.collective_calls import sum_first
from shardwise.interop.running.silence import codes_of, is_running
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_call import Arguments, Keywords, TorchFunction
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.normalize import axis_argument
from shardwise.types.placement import NORM, P, R, V
from shardwise.types.tensor_type import Ground, TensorType

from ..call.arguments import Op
from ..state.numbers import lost_by, typed
from ..state.session import CheckSession
from .foreign_numbers import HANDING_OVER, note_left
from .ordinary import Handler

_BRANCHING = {"__bool__", "is_nonzero", "__index__", "__contains__", "equal", "allclose"}
_NUMBERS = {"item", "tolist", "__int__", "__float__"}
"""What gives a number, on which the program branches or not: that is for the source to tell."""
_COMPARING = codes_of(torch.testing.assert_close)
_COMPARISONS = {"equal", "allclose"}
"""Comparing local tensors is how a type error is hunted down, so it is allowed on a pending sum."""


def value_read(op: Op) -> Handler:
    """The handler for what hands a tensor's value to Python."""

    def handle(session: CheckSession, func: TorchFunction, args: Arguments, kwargs: Keywords) -> object:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        told: set[Any] = set()
        for tensor in tensors:
            type = type_of(tensor)
            for axis, place in zip(type.axes, type.placements, strict=True):
                if axis in told:
                    continue
                if place.is_partial and type.ground is not Ground.ZERO and op.name not in _COMPARISONS:
                    own = _is_average(type, axis) or (place is P and session.only_observed)
                    if is_running(_COMPARING) or (own and _takes_number(op)):
                        continue
                    told.add(axis)
                    report_read(session, op.name, "SW115", tensor, axis)
                elif place.is_varying and not type.ground.is_constant and _decides(op):
                    told.add(axis)
                    report_read(session, op.name, "SW116", tensor, axis)
        if any(type_of(tensor).axes for tensor in tensors):
            session.checked += 1
        else:
            session.unchecked += 1
        if session.only_observed and (site := user_site()) is not None:
            constant = all(type_of(tensor).ground.is_constant for tensor in tensors)
            session.constants_read[site] = constant and session.constants_read.get(site, True)
        result = func(*args, **kwargs)
        if op.name in HANDING_OVER and tensors:
            note_left(session, tensors[0])
        return _told(session, op, tensors[0], result) if len(tensors) == 1 else result

    return handle


def _told(session: CheckSession, op: Op, tensor: torch.Tensor, result: object) -> object:
    """What was read, as numbers with the tensor's type; where Python keeps none, that is listed."""
    type = type_of(tensor)
    if not has_number(type, session.only_observed):
        return result
    if op.name in ("item", "tolist"):
        # Of a constant on the scale of one device it is a plain number: so are the thousands of ranks of a mesh.
        plain = type.ground.is_constant and not any(type.scale.values())
        return result if plain else _typed_numbers(result, number_of(type))
    if op.name in ("__int__", "__float__", "__complex__") and (type.varying_axes or any(type.scale.values())):
        location = user_location(2)
        if location is not None and not session.keeps_numbers and not is_library_calling(2):
            session.trust(lost_by(op.name.strip("_")), location)
    return result


def has_number(type: TensorType, logged: bool = False) -> bool:
    """True if a number that is read of a tensor of this type has a type itself.

    ``logged``  so has an addend of a pending sum.
    """
    unknown = type.ground is Ground.UNKNOWN or any(p.is_unknown for p in type.placements)
    own = all(_is_average(type, axis) or (logged and type.get(axis) is P) for axis in type.partial_axes)
    return bool(type.axes) and own and not unknown


def number_of(type: TensorType) -> TensorType:
    """The type of one element of a tensor: a number is equal or varies, and has no dims.

    Of a pending average each rank has a mean of its own, which is no multiple of anything; an addend of a pending sum
    stays one.
    """
    own = {axis: P for axis in type.partial_axes if not _is_average(type, axis)}
    places = {axis: own.get(axis) or (R if type.get(axis).is_equal else V) for axis in type.axes}
    return TensorType.of(places, scale={a: e for a, e in type.scale.items() if not _is_average(type, a)})


def _is_average(type: TensorType, axis: MeshAxis) -> bool:
    return type.get(axis) is P and type.exponent(axis) == 1


def _takes_number(op: Op) -> bool:
    """Does the call give a number, by which the program does not go on in one way or another?"""
    return op.name in (*_NUMBERS, *HANDING_OVER) and not _decides(op)


def _typed_numbers(value: object, type: TensorType) -> object:
    if isinstance(value, list):
        return [_typed_numbers(item, type) for item in value]
    return typed(value, type)


def _decides(op: Op) -> bool:
    """Does the program, and not torch for it, go on in one way or another by what is read?"""
    if op.name in _NUMBERS:
        location = user_location(2)
        return location is not None and not is_library_calling(2) and decides(location)
    # torch's own method ``__contains__`` stands between the program and this call, which is the program's all the same.
    return op.name in _BRANCHING and (op.name == "__contains__" or not is_library_calling(2))


def report_read(session: CheckSession, op: str, code: str, tensor: torch.Tensor, axis: Any) -> None:
    """Report that ``op`` reads a pending sum (SW115), or branches on what varies (SW116)."""
    located = LocatedCall(op, [("input", tensor)])
    name, along = located.name(0), axis_text(axis)
    if code == "SW115":
        shown = op.strip("_")
        place = type_of(tensor).get(axis)
        message = f"{shown} reads {name}, which is still {place.word} over {along}"
        own = "addend" if place is P else "candidate" if place.is_extremum else place.reduction
        facts: tuple[str, ...] = (f"each rank would read its own {own}, a number that means nothing alone",)
        source = f'P("{place.reduction}")' if place.is_extremum else "P"
        finished = f"all_reduce({name}, {axis_argument(axis)}, src={source}, dst=R)"
        if place.reduction is NORM:
            finished = f"all_reduce({name}.square(), {axis_argument(axis)}, src=P, dst=R).sqrt()"
        help_lines: tuple[str, ...] = (f"{finished} before {shown}",)
    else:
        message = f"the program branches on {name}, which differs between the ranks of {along}"
        if op in _COMPARISONS:
            message = f"{op} gives each rank of {along} its own answer about {name}, which differs between them"
        facts = ("ranks that take different branches issue different collectives, and then all of them wait",)
        help_lines = (f"all_reduce({name}, {axis_argument(axis)}, src=V, dst=R) first: then all ranks decide alike",)
    said = Diagnosis(code, message, facts, help_lines)
    if code == "SW115" and place is P:
        said = replace(said, fixes=sum_first(located.location, located.names[0], axis, help_lines[0], written=False))
    report(session, located, said, axis)
