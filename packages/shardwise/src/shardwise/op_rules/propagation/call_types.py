"""The types of a call's results: an op rule and the types of all operands, asked along every mesh axis in play; pure.

The answer, an ``Outcome``, always has a type: where an axis was refused it is unknown there, so that a run can go on
and report every independent mistake and no echoes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import CurrentMesh
from shardwise.mesh.regions import reinterpret
from shardwise.types.placement import UNKNOWN, I, P, Placement, R, V
from shardwise.types.spec import PartitionSpec
from shardwise.types.tensor_type import UNKNOWN_TYPE, Exponent, Ground, TensorType, constant_type

from ..schema import Each, OpRule
from .dim_labels import Call, Shape
from .local import Given, Refusal, Weak, local_rules
from .logged import is_message, may_be_summed
from .operand import Bound, givens_along, sharded_dim
from .placer import Placer, Scope, result_type
from .scale import scales_of_results
from .untyped_calls import untyped_result

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
    ``blocked``  why sums may not pass; see ``local_rule``.
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
        made_here = untyped_result(rule, operands, types, mesh, placer, strict)
        return Outcome(made_here, tuple(refusals), checked=False)

    untyped = {position for position, type in enumerate(types) if isinstance(type, TensorType) and not type.axes}
    if untyped and strict:
        missing = tuple(sorted(untyped))
        refusals.append(AxisRefusal(None, Refusal("SW102", "untyped", missing, tuple(typed))))

    call_along = _CallAlongAxes(rule, operands, types, typed, untyped, strict, blocked, placer, refusals)
    for axis in _axes_in_play((types[position] for position in typed), mesh if strict else None):
        call_along.judge(axis)
    found, seen = call_along.found, call_along.seen
    specs = call_along.specs()
    made = _results(found, specs, placer.uneven if placer is not None else (), mesh, call_along.scales)
    first = made[0]
    judged = bool(refusals) or any(place is not UNKNOWN for places in found.values() for place in places)
    return Outcome(
        first,
        tuple(refusals),
        _sources(first, seen),
        call_along.grad_matters,
        call_along.blockable,
        judged,
        results=tuple(made) if len(made) > 1 else (),
        origins=tuple(_sources(type, seen) for type in made) if len(made) > 1 else (),
        call=call if scope is not None else None,
        by_value=call_along.by_value,
    )


@dataclass
class _CallAlongAxes:
    """One call, judged along one mesh axis after another.

    ``typed``, ``untyped``  the positions of the operands that have a type, and of those that could have one.
    ``found``   for every axis, the placement of each result; a single one: of all.
    ``scales``  for every axis, the exponent of each result; a single one: of all.
    ``seen``    for every axis, what the operands are along it, and the position of each of them.

    ``x @ w`` with global types, x f32[8@dp, 4@tp] and w f32[4@tp, 6] {dp: R}: along dp the rows of x are sharded and w
    is whole, so ``found[dp] = (V,)``; along tp the dim that is summed is sharded in both, so ``found[tp] = (P,)``.
    """

    rule: OpRule
    operands: Sequence[Bound]
    types: Sequence[TensorType | Weak]
    typed: Sequence[int]
    untyped: Collection[int]
    strict: bool
    blocked: str | None
    placer: Placer | None
    refusals: list[AxisRefusal]
    found: dict[MeshAxis, tuple[Placement | Weak, ...]] = field(default_factory=dict)
    scales: dict[MeshAxis, tuple[Exponent, ...]] = field(default_factory=dict)
    seen: dict[MeshAxis, tuple[list[Given], list[int]]] = field(default_factory=dict)
    grad_matters: bool = False
    blockable: bool = False
    by_value: bool = False

    def judge(self, axis: MeshAxis) -> None:
        """What the results are along ``axis``."""
        givens, positions = givens_along(axis, self.operands, self.types)
        absent = tuple(at for at in self.typed if at not in positions)
        real = {given.placement for given in givens if not isinstance(given.placement, Weak)}
        self.grad_matters |= I in real and len(real - {UNKNOWN}) > 1
        self.blockable |= any(place.is_partial for place in real)
        self.by_value |= any(place.is_partial and place is not P for place in real) and len(givens) > len(real)
        if absent and self.strict:
            self.found[axis] = self._refused(axis, Refusal("SW103", "missing axis", absent, tuple(self.typed)))
        elif not real:
            pass  # permissive: no operand says anything about this axis
        elif self.untyped or absent:
            self.found[axis] = (UNKNOWN,)  # nothing is assumed of an operand of which nothing is known
            self.seen[axis] = givens, positions
        else:
            self.found[axis] = places = self._placed(axis, givens, positions, real)
            self.seen[axis] = givens, positions
            self._scale(axis, givens, positions, places)

    def specs(self) -> list[PartitionSpec | None]:
        """The spec of each result, once every axis has been judged."""
        if self.placer is None:
            return []
        put_together = self.placer.specs()
        if isinstance(put_together, Refusal):
            unknown = self._refused(None, put_together)
            self.found |= dict.fromkeys((*self.placer.dims, *self.placer.summed), unknown)
            return []
        return put_together

    def _placed(
        self, axis: MeshAxis, givens: list[Given], positions: list[int], real: Collection[Placement]
    ) -> tuple[Placement | Weak, ...]:
        placer, complete = self.placer, len(givens) == len(self.operands)
        places = local_rules(self.rule, givens, blocked=self.blocked, complete=complete)
        pending = [place for place in real if place.is_partial]
        sums = bool(pending) and all(place is P for place in pending)
        if sums and V in real and placer is not None and self.blocked is None and complete and placer.joins(axis):
            places = (P,)  # the sum over the sharded dim is pending too, and is added to the one that is
            placer.summed.add(axis)
        elif isinstance(places, Refusal):
            logged = places.code == "SW113" and self._is_message(givens) and may_be_summed(givens)
            places = (P,) if logged else self._refused(axis, places, givens, positions)
        if placer is None:
            return places
        if axis in placer.scope.mapped:
            cut = tuple(at for at in self.typed if sharded_dim(self.types[at], axis) is not None)
            return self._refused(axis, Refusal("SW401", "not mapped", cut)) if cut else places
        if V not in places or axis in placer.scope.local_axes:
            return places
        if len(positions) < len(self.operands):
            return (UNKNOWN,)  # nobody knows how an operand is cut that says nothing about the axis
        placed = placer.place(axis, places)
        if not isinstance(placed, Refusal):
            return placed
        # What a pending sum may not meet takes the same steps as locally; of the others the repairs are global.
        return self._refused(axis, placed, *((givens, positions) if placed.code == "SW113" else ()))

    def _is_message(self, givens: Sequence[Given]) -> bool:
        """Are numbers joined here that may only be logged?"""
        found = self.placer is not None and self.placer.scope.observed and is_message(self.rule, givens)
        self.grad_matters |= found
        return found

    def _scale(
        self, axis: MeshAxis, givens: list[Given], positions: list[int], places: tuple[Placement | Weak, ...]
    ) -> None:
        averaged = self.placer is not None and axis in self.placer.averaged
        exponents = scales_of_results(self.rule, givens, places, averaged, untold=self.placer is None)
        if isinstance(exponents, Refusal):
            if not self._is_message(givens):
                self._refused(axis, exponents, givens, positions)
            exponents = (None,)
        if any(exponent != 0 for exponent in exponents):
            self.scales[axis] = exponents

    def _refused(
        self, axis: MeshAxis | None, refusal: Refusal, givens: Sequence[Given] = (), positions: Sequence[int] = ()
    ) -> tuple[Placement, ...]:
        """Take the refusal; the results are unknown along the axis, so that it has no echo."""
        self.refusals.append(AxisRefusal(axis, refusal, tuple(givens), tuple(positions)))
        return (UNKNOWN,)


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
    """For every axis of the type, the operand that it got the placement from.

    Of a result of which nothing is known, the one that is a pending sum: it is remembered whose addend it is made of.
    """

    def source(axis: MeshAxis) -> int | None:
        wanted = P if type.get(axis) is UNKNOWN else type.get(axis)
        return next((at for given, at in zip(*seen[axis], strict=True) if given.placement is wanted), None)

    return tuple(source(axis) if axis in seen else None for axis in type.axes)


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
    if (type.varying_axes or type.partial_axes) and (mesh is None or mesh.axes.issuperset(type.axes)):
        return type
    return Weak.ZERO if operand.number == 0 else Weak.CONSTANT


def _axes_in_play(types: Iterable[TensorType | Weak], mesh: CurrentMesh | None) -> list[MeshAxis]:
    axes = {axis for type in types if isinstance(type, TensorType) for axis in type.axes}
    if mesh is not None:
        axes |= mesh.axes
    return sorted(axes, key=lambda axis: axis.sort_key)
