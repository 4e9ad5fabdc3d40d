"""What is the type of a call's result? Applies a row's local rule on every mesh axis in play; pure.

The answer, an ``Outcome``, always has a type: where an axis was refused it is unknown there, so that a run can go on
and report every independent mistake and no echoes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.mesh.current import CurrentMesh
from shardwise.mesh.regions import reinterpret
from shardwise.rules.algebra import Given, Refusal, Weak, local_rule
from shardwise.rules.row import Row
from shardwise.types.errors import SpmdTypeError
from shardwise.types.placement import UNKNOWN, I, P, Placement
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType, constant_type


@dataclass(frozen=True, slots=True)
class Bound:
    """One operand of a call: ``param`` and ``index`` say where it stands, ``label`` what to call it."""

    param: str
    type: TensorType | Weak
    index: int | None = None
    grad: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class AxisRefusal:
    """A refusal on one axis (None: on all of them, the operand as such is at fault)."""

    axis: Any
    refusal: Refusal
    givens: tuple[Given, ...] = ()
    positions: tuple[int, ...] = ()
    """For each given, the position of its operand in the call's list."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result's type, what was refused, and for each axis of the type the operand it got the placement from.

    ``grad_matters``  the answer depends on which operands can receive a gradient.
    ``blockable``     the answer depends on the row's guard, because some operand is partial.
    ``checked``       some operand was typed, so this call was really checked.
    """

    type: TensorType
    refusals: tuple[AxisRefusal, ...] = ()
    sources: tuple[int | None, ...] = ()
    grad_matters: bool = False
    blockable: bool = False
    checked: bool = True


def infer(
    row: Row,
    operands: Sequence[Bound],
    mesh: CurrentMesh | None,
    strict: bool,
    *,
    blocked: str | None = None,
) -> Outcome:
    """The type of ``row``'s result for these operands; ``blocked``: see ``algebra.local_rule``."""
    refusals: list[AxisRefusal] = []
    types = [_present(operand, position, mesh, refusals) for position, operand in enumerate(operands)]
    if any(type is UNKNOWN_TYPE for type in types):
        return Outcome(UNKNOWN_TYPE, tuple(refusals))
    typed = [position for position, type in enumerate(types) if isinstance(type, TensorType) and type.axes]
    if not typed:
        return Outcome(_untyped_result(row, operands, types, mesh), tuple(refusals), checked=False)

    untyped = {position for position, type in enumerate(types) if isinstance(type, TensorType) and not type.axes}
    if untyped and strict:
        missing = tuple(sorted(untyped))
        refusals.append(AxisRefusal(None, Refusal("SW102", "untyped", missing, tuple(typed))))

    axes = _axes_in_play((types[position] for position in typed), mesh if strict else None)
    placements: dict[Any, Placement] = {}
    sources: dict[Any, int | None] = {}
    grad_matters = blockable = False
    for axis in axes:
        givens, positions, absent = _along(axis, operands, types)
        real = {given.place for given in givens if not isinstance(given.place, Weak)}
        grad_matters |= I in real and len(real - {UNKNOWN}) > 1
        blockable |= P in real
        if absent and strict:
            refusals.append(AxisRefusal(axis, Refusal("SW103", "missing axis", absent, tuple(typed))))
            placements[axis] = UNKNOWN
            continue
        if not real:
            continue  # permissive: no operand says anything about this axis
        if untyped and P in real:
            placements[axis] = UNKNOWN  # reported as SW102, or permissive and not to be judged
            continue
        place = local_rule(row, givens, blocked=blocked)
        if isinstance(place, Refusal):
            refusals.append(AxisRefusal(axis, place, tuple(givens), tuple(positions)))
            place = UNKNOWN
        assert not isinstance(place, Weak), "a typed operand is never weak"
        placements[axis] = place
        sources[axis] = next((at for at, g in zip(positions, givens, strict=True) if g.place is place), None)
    result = TensorType.of(placements)
    return Outcome(result, tuple(refusals), tuple(sources.get(axis) for axis in result.axes), grad_matters, blockable)


def _present(operand: Bound, position: int, mesh: CurrentMesh | None, refusals: list[AxisRefusal]) -> TensorType | Weak:
    """An operand's type as this call sees it: constants are weak, foreign axes are read on the current mesh."""
    type = operand.type
    if isinstance(type, Weak):
        return type
    if type.ground is Ground.UNKNOWN:
        return UNKNOWN_TYPE
    if type.ground.is_constant and not operand.grad:
        return Weak.ZERO if type.ground is Ground.ZERO else Weak.CONSTANT
    if mesh is not None and not all(axis in mesh.axes for axis in type.axes):
        try:
            return reinterpret(type, mesh.axes)
        except SpmdTypeError as error:
            refusals.append(AxisRefusal(None, Refusal("SW133", error.message, (position,))))
            return UNKNOWN_TYPE
    return type


def _axes_in_play(types: Iterable[TensorType | Weak], mesh: CurrentMesh | None) -> list[Any]:
    axes = {axis for type in types if isinstance(type, TensorType) for axis in type.axes}
    if mesh is not None:
        axes |= mesh.axes
    return sorted(axes, key=lambda axis: axis.sort_key)


def _along(
    axis: Any, operands: Sequence[Bound], types: Sequence[TensorType | Weak]
) -> tuple[list[Given], list[int], tuple[int, ...]]:
    """The operands along ``axis``, their positions, and the positions of typed operands that do not mention it."""
    givens, positions, absent = [], [], []
    for position, (operand, type) in enumerate(zip(operands, types, strict=True)):
        if isinstance(type, Weak):
            place: Placement | Weak = type
        elif axis in type:
            place = type.get(axis)
        else:
            if type.axes:
                absent.append(position)
            continue
        givens.append(Given(operand.param, place, operand.index, operand.grad))
        positions.append(position)
    return givens, positions, tuple(absent)


def _untyped_result(
    row: Row, operands: Sequence[Bound], types: Sequence[TensorType | Weak], mesh: CurrentMesh | None
) -> TensorType:
    """No operand has a type: constants make constants, anything else stays unannotated until it meets a type."""
    if not types or not all(isinstance(type, Weak) for type in types):
        return UNTYPED
    givens = [Given(o.param, t, o.index) for o, t in zip(operands, types, strict=True) if isinstance(t, Weak)]
    zero = local_rule(row, givens) is Weak.ZERO
    return constant_type(mesh.axes if mesh is not None else (), zero=zero)


def with_type(operand: Bound, axis: Any, place: Placement) -> Bound:
    """``operand`` as if it had placement ``place`` on ``axis``; for trying repairs."""
    assert isinstance(operand.type, TensorType), "only a typed operand can be repaired"
    return replace(operand, type=operand.type.with_placements({axis: place}))
