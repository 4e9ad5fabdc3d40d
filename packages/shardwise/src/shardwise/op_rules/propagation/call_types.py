"""The types of a call's results: an op rule and the types of all operands, asked along every mesh axis in play; pure.

The answer, an ``Outcome``, always has a type: where an axis was refused it is unknown there, so that a run can go on
and report every independent mistake and no echoes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import CurrentMesh
from shardwise.mesh.regions import reinterpret
from shardwise.types.placement import UNKNOWN, I, P, Placement, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNKNOWN_TYPE, UNTYPED, Exponent, Ground, TensorType, constant_type

from ..schema import Each, OpRule
from .dim_labels import Call, Shape, pointwise
from .local import Given, Refusal, Weak, local_rule, local_rules
from .operand import Bound, exponent_along, givens_along, may_be_count, sharded_dim
from .placer import Placer, Scope, result_type
from .scale import scale_rule, scales_of_results

NO_CALL = Call((), {})


@dataclass(frozen=True, slots=True)
class AxisRefusal:
    """A refusal on one axis (None: on all of them, the operand as such is at fault)."""

    axis: Any
    refusal: Refusal
    givens: tuple[Given, ...] = ()
    positions: tuple[int, ...] = ()
    """For each given, the position of its operand in the call's list."""

    def shifted(self, by: int) -> AxisRefusal:
        """The same, with ``by`` more operands in front."""

        def later(positions: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(position + by for position in positions)

        if self.positions:  # by which what the refusal counts is found
            return replace(self, positions=later(self.positions))
        at_fault = replace(self.refusal, culprits=later(self.refusal.culprits), others=later(self.refusal.others))
        return replace(self, refusal=at_fault)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result's type, what was refused, and for each axis of the type the operand it got the placement from.

    ``grad_matters``  the answer depends on which operands can receive a gradient.
    ``blockable``     the answer depends on the rule's guard, because some operand is partial.
    ``by_value``      the answer depends on the values of plain numbers.
    ``checked``       something was known of the operands, so this call was really checked.
    ``results``       one type per result tensor where they differ; empty: all have ``type``.
    ``elsewhere``     judged on another mesh than the current one.
    ``call``          the call as its labels see it, in global mode; what repairs are tried on.
    """

    type: TensorType
    refusals: tuple[AxisRefusal, ...] = ()
    sources: tuple[int | None, ...] = ()
    grad_matters: bool = False
    blockable: bool = False
    checked: bool = True
    results: tuple[TensorType, ...] = ()
    origins: tuple[tuple[int | None, ...], ...] = ()
    call: Call | None = None
    elsewhere: bool = False
    by_value: bool = False


def propagate(
    rule: OpRule,
    operands: Sequence[Bound],
    mesh: CurrentMesh | None,
    strict: bool,
    *,
    blocked: str | None = None,
    scope: Scope | None = None,
    call: Call = NO_CALL,
) -> Outcome:
    """The type of ``rule``'s result for these operands.

    Where the results have nothing to do with each other, each is a call of its own.
    ``blocked``  see ``algebra.local_rule``.
    ``scope``    how far global typing reaches, None in local mode; ``call`` is then what the rule labels.
    """
    if rule.each is Each.APART and len(operands) > 1:
        return _apart(rule, operands, mesh, strict, blocked, scope)
    refusals: list[AxisRefusal] = []
    types = [_present(operand, at, mesh, refusals, scope is not None) for at, operand in enumerate(operands)]
    if any(type is UNKNOWN_TYPE for type in types):
        return Outcome(UNKNOWN_TYPE, tuple(refusals), checked=bool(refusals))
    typed = [
        position
        for position, type in enumerate(types)
        if isinstance(type, TensorType) and type.axes and operands[position].number is None
    ]
    placer = None if scope is None else Placer(rule, call, operands, types, scope)
    if not typed:
        made_here = _untyped_result(rule, operands, types, mesh, placer, strict)
        return Outcome(made_here, tuple(refusals), checked=False)

    untyped = {position for position, type in enumerate(types) if isinstance(type, TensorType) and not type.axes}
    if untyped and strict:
        missing = tuple(sorted(untyped))
        refusals.append(AxisRefusal(None, Refusal("SW102", "untyped", missing, tuple(typed))))

    axes = _axes_in_play((types[position] for position in typed), mesh if strict else None)
    scales: dict[MeshAxis, tuple[Exponent, ...]] = {}
    """For every axis, the exponent of each result; a single one: of all."""
    found: dict[MeshAxis, tuple[Placement | Weak, ...]] = {}
    """For every axis, the placement of each result; a single one: of all."""
    seen: dict[MeshAxis, tuple[list[Given], list[int]]] = {}
    grad_matters = blockable = by_value = False
    for axis in axes:
        givens, positions = givens_along(axis, operands, types)
        absent = tuple(at for at in typed if at not in positions)
        real = {given.placement for given in givens if not isinstance(given.placement, Weak)}
        grad_matters |= I in real and len(real - {UNKNOWN}) > 1
        pending = any(place.is_partial for place in real)
        blockable |= pending
        by_value |= any(place.is_partial and place is not P for place in real) and len(givens) > len(real)
        if absent and strict:
            refusals.append(AxisRefusal(axis, Refusal("SW103", "missing axis", absent, tuple(typed))))
            found[axis] = (UNKNOWN,)
            continue
        if not real:
            continue  # permissive: no operand says anything about this axis
        if untyped or absent:
            found[axis] = (UNKNOWN,)  # nothing is assumed of an operand of which nothing is known
            continue
        complete = len(givens) == len(operands)
        places = local_rules(rule, givens, blocked=blocked, complete=complete)
        sums = pending and all(place is P for place in real if place.is_partial)
        if sums and V in real and placer is not None and blocked is None and complete and placer.joins(axis):
            places = (P,)  # the sum over the sharded dim is pending too, and is added to the one that is
            placer.summed.add(axis)
        elif isinstance(places, Refusal):
            refusals.append(AxisRefusal(axis, places, tuple(givens), tuple(positions)))
            places = (UNKNOWN,)
        if placer is not None and axis in placer.scope.mapped:
            cut = tuple(at for at in typed if sharded_dim(types[at], axis) is not None)
            if cut:
                refusals.append(AxisRefusal(axis, Refusal("SW401", "not mapped", cut)))
                places = (UNKNOWN,)
        elif isinstance(places, tuple) and V in places and placer is not None and axis not in placer.scope.local_axes:
            # Nobody knows how an operand is cut that says nothing about the axis.
            known = len(positions) == len(operands)
            places = placer.place(axis, places) if known else (UNKNOWN,)
            if isinstance(places, Refusal):
                refusals.append(AxisRefusal(axis, places))
                places = (UNKNOWN,)
        found[axis] = places
        seen[axis] = givens, positions
        averaged = placer is not None and axis in placer.averaged
        exponents = scales_of_results(rule, givens, places, averaged, untold=placer is None)
        if isinstance(exponents, Refusal):
            refusals.append(AxisRefusal(axis, exponents, tuple(givens), tuple(positions)))
            exponents = (None,)
        if any(exponent != 0 for exponent in exponents):
            scales[axis] = exponents
    specs: list[PartitionSpec | None] = []
    if placer is not None:
        put_together = placer.specs()
        if isinstance(put_together, Refusal):
            refusals.append(AxisRefusal(None, put_together))
            found |= dict.fromkeys((*placer.dims, *placer.summed), (UNKNOWN,))
        else:
            specs = put_together
    made = _results(found, specs, placer.uneven if placer is not None else (), mesh, scales)
    first = made[0]
    judged = bool(refusals) or any(place is not UNKNOWN for places in found.values() for place in places)
    return Outcome(
        first,
        tuple(refusals),
        _sources(first, seen),
        grad_matters,
        blockable,
        judged,
        results=tuple(made) if len(made) > 1 else (),
        origins=tuple(_sources(type, seen) for type in made) if len(made) > 1 else (),
        call=call if scope is not None else None,
        by_value=by_value,
    )


def _apart(
    rule: OpRule,
    operands: Sequence[Bound],
    mesh: CurrentMesh | None,
    strict: bool,
    blocked: str | None,
    scope: Scope | None,
) -> Outcome:
    """One call per operand; what is refused counts operands as the call with all of them does."""
    outcomes = [
        propagate(rule, [operand], mesh, strict, blocked=blocked, scope=scope, call=_alone(operand))
        for operand in operands
    ]
    return Outcome(
        outcomes[0].type,
        tuple(one.shifted(by) for by, outcome in enumerate(outcomes) for one in outcome.refusals),
        outcomes[0].sources,
        any(outcome.grad_matters for outcome in outcomes),
        any(outcome.blockable for outcome in outcomes),
        any(outcome.checked for outcome in outcomes),
        tuple(outcome.type for outcome in outcomes),
        tuple(tuple(None if at is None else at + by for at in one.sources) for by, one in enumerate(outcomes)),
        None if scope is None else NO_CALL,
    )


def _alone(operand: Bound) -> Call:
    """A call on this operand only."""
    shapes = () if operand.shape is None else (Shape(operand.shape, operand.param, operand.dtype),)
    return Call(shapes, {operand.param: list(shapes)})


def _results(
    found: Mapping[MeshAxis, tuple[Placement | Weak, ...]],
    specs: Sequence[PartitionSpec | None],
    uneven: Collection[MeshAxis],
    mesh: CurrentMesh | None,
    scales: Mapping[MeshAxis, tuple[Exponent, ...]],
) -> list[TensorType]:
    """The type of every result; a single one: of all. A result of constants alone is one."""
    count = max((len(each) for each in (*found.values(), *scales.values(), specs)), default=1)
    made = []
    for number in range(max(count, 1)):
        places: dict[MeshAxis, Placement] = {}
        weak: dict[MeshAxis, Weak] = {}
        for axis, own in found.items():
            place = own[number] if len(own) > 1 else own[0]
            if isinstance(place, Weak):
                weak[axis] = place
                # A constant in the shape of a shard: elsewhere it is whichever the others need.
                place = next((one for one in own if not isinstance(one, Weak) and one.is_equal), R)
            places[axis] = place
        if weak and len(weak) == len(places):
            zero = all(place is Weak.ZERO for place in weak.values())
            made.append(constant_type(mesh.axes if mesh is not None else (), zero=zero))
            continue
        scale = {axis: each[number] if len(each) > 1 else each[0] for axis, each in scales.items()}
        type = TensorType.of(places, scale=scale) if scale else TensorType.of(places)
        if specs:
            type = result_type(type, specs[number] if len(specs) > 1 else specs[0], uneven)
        made.append(type)
    return made


def _sources(type: TensorType, seen: Mapping[MeshAxis, tuple[list[Given], list[int]]]) -> tuple[int | None, ...]:
    """For every axis of the type, the operand that it got the placement from."""
    return tuple(
        next((at for given, at in zip(*seen[axis], strict=True) if given.placement is type.get(axis)), None)
        if axis in seen
        else None
        for axis in type.axes
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
    if operand.number is not None:
        return _present_number(operand, type, mesh)
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


def _present_number(operand: Bound, type: TensorType, mesh: CurrentMesh | None) -> TensorType | Weak:
    """A number with a type: what is equal everywhere takes part as any number does, and only its scale matters."""
    if type.varying_axes and (mesh is None or mesh.axes.issuperset(type.axes)):
        return type
    return Weak.ZERO if operand.number == 0 else Weak.CONSTANT


def _axes_in_play(types: Iterable[TensorType | Weak], mesh: CurrentMesh | None) -> list[MeshAxis]:
    axes = {axis for type in types if isinstance(type, TensorType) for axis in type.axes}
    if mesh is not None:
        axes |= mesh.axes
    return sorted(axes, key=lambda axis: axis.sort_key)


def _untyped_result(
    rule: OpRule,
    operands: Sequence[Bound],
    types: Sequence[TensorType | Weak],
    mesh: CurrentMesh | None,
    placer: Placer | None,
    strict: bool,
) -> TensorType:
    """No operand has a type: constants make constants, anything else stays unannotated until it meets a type."""
    varying = {axis for type in types if isinstance(type, TensorType) for axis in type.varying_axes}
    numbers = all(isinstance(t, Weak) or o.number is not None for o, t in zip(operands, types, strict=True))
    if varying and numbers:
        places: dict[MeshAxis, Placement] = dict.fromkeys(varying if mesh is None else mesh.axes, R)
        places |= {axis: _by_number(axis, placer, strict) for axis in varying}
        specs = placer.specs() if placer is not None else []
        spec = specs[0] if isinstance(specs, list) and specs else None
        return result_type(TensorType.of(places, scale=dict.fromkeys(varying)), spec)
    if not types or not all(isinstance(type, Weak) for type in types):
        return UNTYPED
    givens = [Given(o.param, t, o.index) for o, t in zip(operands, types, strict=True) if isinstance(t, Weak)]
    zero = local_rule(rule, givens) is Weak.ZERO
    made = constant_type(mesh.axes if mesh is not None else (), zero=zero, uniform=_is_uniform(rule, operands))
    if zero or not any(_is_scaled(operand) for operand in operands):
        return made
    scale = {}
    for axis in made.axes:
        exponents = [exponent_along(axis, o, t) for o, t in zip(operands, types, strict=True)]
        along = [replace(given, exponent=exponent) for given, exponent in zip(givens, exponents, strict=True)]
        exponent = scale_rule(rule, along, R)
        scale[axis] = None if isinstance(exponent, Refusal) else exponent
    return made.with_scale(scale)


def _by_number(axis: MeshAxis, placer: Placer | None, strict: bool) -> Placement:
    """What a constant becomes by a number that differs along ``axis``.

    With global types a shard, if this rank's part of it is cut out; otherwise nothing is known of it.
    """
    if placer is None or axis in placer.scope.local_axes:
        return V
    placed = placer.place(axis, (V,))
    own = not isinstance(placed, Refusal) and UNKNOWN not in placed
    return V if own or strict else UNKNOWN


def _is_scaled(operand: Bound) -> bool:
    return may_be_count(operand.number) or (isinstance(operand.type, TensorType) and bool(operand.type.scale))


def _is_uniform(rule: OpRule, operands: Sequence[Bound]) -> bool:
    """True if a call on operands of one value each gives one value: element by element, or elements moved about."""
    if rule.labels is not pointwise and not rule.view:
        return False
    return all(isinstance(o.type, Weak) or o.type.ground in (Ground.UNIFORM, Ground.ZERO) for o in operands)
