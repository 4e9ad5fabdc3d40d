"""What is the type of a call's result? Applies a row's local rule on every mesh axis in play; pure.

The answer, an ``Outcome``, always has a type: where an axis was refused it is unknown there, so that a run can go on
and report every independent mistake and no echoes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.mesh.current import CurrentMesh
from shardwise.mesh.regions import reinterpret
from shardwise.rules.algebra import Given, Refusal, Weak, local_rule
from shardwise.rules.labels import Call, pointwise
from shardwise.rules.row import Row
from shardwise.types.errors import SpmdTypeError
from shardwise.types.placement import UNKNOWN, I, P, Placement, V
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Ground, TensorType, constant_type

from .binding import Bound, givens_along
from .globally import Placer, Scope, result_types

NO_CALL = Call((), {})


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
    ``results``       one type per result tensor where they differ; empty: all have ``type``.
    ``call``          the call as its labels see it, in global mode; what repairs are tried on.
    """

    type: TensorType
    refusals: tuple[AxisRefusal, ...] = ()
    sources: tuple[int | None, ...] = ()
    grad_matters: bool = False
    blockable: bool = False
    checked: bool = True
    results: tuple[TensorType, ...] = ()
    call: Call | None = None


def infer(
    row: Row,
    operands: Sequence[Bound],
    mesh: CurrentMesh | None,
    strict: bool,
    *,
    blocked: str | None = None,
    scope: Scope | None = None,
    call: Call = NO_CALL,
) -> Outcome:
    """The type of ``row``'s result for these operands.

    ``blocked``  see ``algebra.local_rule``.
    ``scope``    how far global typing reaches, None in local mode; ``call`` is then what the row labels.
    """
    refusals: list[AxisRefusal] = []
    types = [_present(operand, at, mesh, refusals, scope is not None) for at, operand in enumerate(operands)]
    if any(type is UNKNOWN_TYPE for type in types):
        return Outcome(UNKNOWN_TYPE, tuple(refusals))
    typed = [position for position, type in enumerate(types) if isinstance(type, TensorType) and type.axes]
    if not typed:
        return Outcome(_untyped_result(row, operands, types, mesh), tuple(refusals), checked=False)

    untyped = {position for position, type in enumerate(types) if isinstance(type, TensorType) and not type.axes}
    if untyped and strict:
        missing = tuple(sorted(untyped))
        refusals.append(AxisRefusal(None, Refusal("SW102", "untyped", missing, tuple(typed))))

    placer = Placer(row, call, operands, types)
    axes = _axes_in_play((types[position] for position in typed), mesh if strict else None)
    placements: dict[Any, Placement] = {}
    sources: dict[Any, int | None] = {}
    grad_matters = blockable = False
    for axis in axes:
        givens, positions = givens_along(axis, operands, types)
        absent = tuple(at for at in typed if at not in positions)
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
        if place is V and scope is not None and axis not in scope.local_axes:
            place = placer.place(axis, scope)
            if isinstance(place, Refusal):
                refusals.append(AxisRefusal(axis, place))
                place = UNKNOWN
        placements[axis] = place
        sources[axis] = next((at for at, g in zip(positions, givens, strict=True) if g.place is place), None)
    specs = placer.specs()
    if isinstance(specs, Refusal):
        refusals.append(AxisRefusal(None, specs))
        placements |= dict.fromkeys(placer.dims, UNKNOWN)
        specs = []
    result = TensorType.of(placements)
    return Outcome(
        result if len(specs) != 1 else result_types(result, specs, placer.uneven)[0],
        tuple(refusals),
        tuple(sources.get(axis) for axis in result.axes),
        grad_matters,
        blockable,
        results=result_types(result, specs, placer.uneven) if len(specs) > 1 else (),
        call=call if scope is not None else None,
    )


def _present(
    operand: Bound, position: int, mesh: CurrentMesh | None, refusals: list[AxisRefusal], globally: bool
) -> TensorType | Weak:
    """An operand's type as this call sees it: constants are weak, foreign axes are read on the current mesh.

    ``globally``  a constant in the shape of a shard is that shard, because its dims are cut.
    """
    type = operand.type
    if isinstance(type, Weak):
        return type
    if type.ground is Ground.UNKNOWN:
        return UNKNOWN_TYPE
    if type.ground.is_constant and not operand.grad and not (globally and type.spec is not None):
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


def _untyped_result(
    row: Row, operands: Sequence[Bound], types: Sequence[TensorType | Weak], mesh: CurrentMesh | None
) -> TensorType:
    """No operand has a type: constants make constants, anything else stays unannotated until it meets a type."""
    if not types or not all(isinstance(type, Weak) for type in types):
        return UNTYPED
    givens = [Given(o.param, t, o.index) for o, t in zip(operands, types, strict=True) if isinstance(t, Weak)]
    zero = local_rule(row, givens) is Weak.ZERO
    return constant_type(mesh.axes if mesh is not None else (), zero=zero, uniform=_is_uniform(row, operands))


def _is_uniform(row: Row, operands: Sequence[Bound]) -> bool:
    """True if a call on operands of one value each gives one value: element by element, or elements moved about."""
    if row.labels is not pointwise and not row.view:
        return False
    return all(isinstance(o.type, Weak) or o.type.ground in (Ground.UNIFORM, Ground.ZERO) for o in operands)
