"""The type of a call whose operands have none: constants make constants, numbers of ranks do not; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.current import CurrentMesh
from shardwise.types.placement import UNKNOWN, Placement, R, V
from shardwise.types.tensor_type import UNTYPED, Ground, TensorType, constant_type

from ..schema import OpRule
from .dim_labels import broadcast_into, pointwise
from .local import Given, Refusal, Weak, local_rule
from .operand import Bound, exponent_along, may_be_count
from .placer import Placer, result_type
from .scale import scale_rule


def untyped_result(
    rule: OpRule,
    operands: Sequence[Bound],
    types: Sequence[TensorType | Weak],
    mesh: CurrentMesh | None,
    placer: Placer | None,
    strict: bool,
) -> TensorType:
    """No operand has a type: constants make constants, anything else stays unannotated until it meets a type."""
    varying = {axis for type in types if isinstance(type, TensorType) for axis in type.varying_axes}
    pending = {axis for type in types if isinstance(type, TensorType) for axis in type.partial_axes}
    numbers = all(isinstance(t, Weak) or o.number is not None for o, t in zip(operands, types, strict=True))
    if pending and numbers:  # an addend of each rank, beside constants
        return TensorType.of(dict.fromkeys(pending | varying, UNKNOWN))
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
    if rule.labels not in (pointwise, broadcast_into) and not rule.view:
        return False
    return all(isinstance(o.type, Weak) or o.type.ground in (Ground.UNIFORM, Ground.ZERO) for o in operands)
