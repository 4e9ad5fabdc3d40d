"""The call that the user's program is making, its operands as the source writes them, and findings about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.finding import Diagnosis
from shardwise.diagnostics.fix import Fix, Remove, Replace
from shardwise.diagnostics.operands import locate
from shardwise.diagnostics.source import Site, user_frame
from shardwise.diagnostics.source_location import Hop, Operand, SourceLocation
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.names import register_name
from shardwise.mesh.normalize import axis_argument
from shardwise.mesh.program import group_expression, mesh_expression
from shardwise.types.notation import TypedShape
from shardwise.types.placement import PerMeshAxisLocalSpmdType

from ..running.session import Session
from ..tensors.dtensors import local_part
from ..tensors.tagging import sizes_of, tag_of, type_of
from ..torch_compat import no_torch_function

_OPERANDS = 3


def axis_text(axis: object) -> str:
    """An axis as messages name it: by its name, else by what the program calls a process group of it."""
    if isinstance(axis, MeshAxis) and repr(axis).startswith("MeshAxis("):
        name = group_expression(axis)
        if name is not None:
            register_name(axis, name)
    return repr(axis)


def placement_text(place: Any) -> str:
    """``R (replicate)`` for messages."""
    return f"{place!r} ({place.word})"


def placements_text(letters: Sequence[str]) -> str:
    """``V (varying), R (replicate) or I (invariant)``."""
    *others, last = (placement_text(PerMeshAxisLocalSpmdType(letter)) for letter in letters)
    return f"{', '.join(others)} or {last}" if others else last


def group_text(axis: MeshAxis) -> str:
    """The process group of an axis as a program may spell it; in words where only a layout is known."""
    argument = axis_argument(axis)
    if argument.startswith('"'):
        mesh = mesh_expression(argument.strip('"'))
        return (group_expression(axis) if mesh is None else None) or f"{mesh or 'mesh'}.get_group({argument})"
    return f"<the group of {axis_text(axis)}>" if argument.startswith("MeshAxis.") else argument


class LocatedCall:
    """The call being made in the user's program, and the operands as the source writes them.

    ``names``   for each its name, and the span that an edit of it changes; None where the source has no expression of
                its own for it, as for an element of a list.
    ``places``  for each what a finding points at: that span, or that of the list.
    """

    def __init__(self, op: str, operands: Sequence[tuple[str, object]]) -> None:
        self.op = op
        self.values = [value for _, value in operands]
        frame = user_frame(2)
        self.location: SourceLocation | None = None
        located: list[tuple[str, SourceLocation | None]] = [(label, None) for label, _ in operands]
        parts: set[int] = set()
        if frame is not None:
            self.location = Site(frame.f_code, frame.f_lasti).location()
            located = locate(frame, op, operands, parts)
        self.names = [(name, None if at in parts else place) for at, (name, place) in enumerate(located)]
        self.places = [place for _, place in located]
        for axis in {axis for value in self.values if isinstance(value, torch.Tensor) for axis in type_of(value).axes}:
            axis_text(axis)  # now, while the program's own names for its groups are in sight

    def name(self, position: int) -> str:
        return self.names[position][0]

    def shown(self, axis: object = None) -> tuple[Operand, ...]:
        """All operands for a finding."""
        return tuple(self.operand(position, axis) for position in range(len(self.values)))

    def replaced(self, help: str, op: str = "", axis: str = "", src: str = "", dst: str = "") -> tuple[Fix, ...]:
        """The edit that makes another transition of the call, or without ``op`` leaves its first operand in its place.

        None where the source does not show both.
        """
        operand = self.names[0][1]
        if self.location is None or operand is None:
            return ()
        return (Fix(help, (Replace(self.location, operand, op, axis, src, dst),)),)

    def removed(self, help: str) -> tuple[Fix, ...]:
        """The edit that leaves out the call, a statement of its own; none where the source does not show it."""
        return () if self.location is None else (Fix(help, (Remove(self.location),)),)

    def forget_values(self) -> None:
        """Keep none of the operands alive; their names and locations stay."""
        self.values = []

    def operand(self, position: int, axis: object = None) -> Operand:
        """The operand at ``position`` for a finding, with where it got its type (on ``axis``)."""
        name, value = self.name(position), self.values[position]
        return Operand(name, describe_value(value), self.places[position], provenance(value, axis))


def report(
    session: Session,
    call: LocatedCall,
    said: Diagnosis,
    axis: object = None,
    *,
    operands: Sequence[Operand] | None = None,
    error: type[SpmdTypeError] = SpmdTypeError,
    context: str | None = None,
) -> None:
    """Report what is said about ``call``: the one way from a diagnosis to a finding. Returns if findings are collected.

    ``axis``      the mesh axis that it is about; None if it is about no axis.
    ``operands``  what the finding shows; the call's first operand if nothing is given.
    """
    shown = (call.operand(0, axis),) if operands is None else tuple(operands)
    along = "" if axis is None else axis_text(axis)
    finding = said.at(call.location, call.op, along, shown)
    session.report(error(said.message, code=said.code, help=said.help, finding=finding, context=context))


def describe_value(value: object) -> str:
    """The full typed shape of an operand, or the number it is."""
    if isinstance(value, torch.Tensor):
        return str(TypedShape(str(value.dtype), sizes_of(value), type_of(value)))
    if isinstance(value, TypedShape):  # of what is never made as a value of its own
        return str(value)
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def provenance(value: object, axis: object = None) -> tuple[Hop, ...]:
    """Where ``value`` got its placement on ``axis`` (None: on any axis), nearest first, at most two hops."""
    tag = tag_of(value)
    if tag is None:
        return ()
    axes = [axis] if axis is not None else list(tag.type.axes)
    hops: list[Hop] = []
    for one in axes:
        origin = tag.origin_of(one)
        while origin is not None and len(hops) < 2:
            if origin.site is not None:
                hop = Hop(origin.text, origin.site.location())
                if hop not in hops:
                    hops.append(hop)
            origin = origin.parent
    return tuple(hops)


def gradients_as_operands(parameters: Sequence[torch.Tensor], names: Sequence[str], axis: object) -> list[Operand]:
    """The first few gradients as a finding shows them, with where they got their types."""
    shown = []
    for parameter, name in list(zip(parameters, names, strict=True))[:_OPERANDS]:
        with no_torch_function():
            gradient = None if parameter.grad is None else local_part(parameter.grad)
        shown.append(Operand(f"{name}.grad", describe_value(gradient), None, provenance(gradient, axis)))
    return shown
