"""The types of numbers: what two of them make, whatever the numbers are.

A number of each rank is V. One that is an addend, as ``n`` in ``n = mask.sum().item()``, is P for as long as it is only
added to such, or multiplied by what all ranks have: the sum over the ranks is then that of one device.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from fractions import Fraction

from shardwise.op_rules.propagation.operand import exponent_of_number
from shardwise.op_rules.propagation.scale import known_power
from shardwise.types.aliases import Axis
from shardwise.types.placement import P, Placement, R, V
from shardwise.types.tensor_type import Exponent, TensorType


def number_type(axes: Iterable[object], scale: Mapping[object, Exponent]) -> TensorType:
    """The type of a number that is equal on every rank."""
    return TensorType.of(dict.fromkeys(axes, R), scale=scale)


def like(type: TensorType, number: object) -> TensorType:
    """The type of a plain number: equal on every rank, and if it may be a count, of a scale that nobody knows."""
    return number_type(type.axes, {axis: exponent_of_number(axis, number) for axis in type.axes})


@functools.lru_cache(maxsize=4096)
def merged(type: TensorType, second: TensorType, sign: int) -> TensorType:
    """The type of what two numbers make. ``sign``: what the second one's exponent counts; 0 for a sum."""
    if not all(one is two or one.isorthogonal(two) for one in type.axes for two in second.axes):
        return type if differing_axes(type) else second  # no mesh says yet how these axes lie to each other
    places: dict[Axis, Placement] = {}
    scale: dict[Axis, Exponent] = {}
    for axis in {*type.axes, *second.axes}:
        places[axis] = _place(type, second, axis, sign)
        one, two = (_as_term(own, axis, places[axis], sign) for own in (type, second))
        if one is None or two is None or (places[axis] is V and P in (type.get(axis), second.get(axis))):
            scale[axis] = None
        elif sign == 0:
            scale[axis] = one if one == two else None
        else:
            scale[axis] = one + sign * two
    return TensorType.of(places, scale=scale)


def differing_axes(type: TensorType) -> tuple[Axis, ...]:
    """The axes along which ranks have numbers of their own."""
    return (*type.varying_axes, *type.partial_axes)


def _place(type: TensorType, second: TensorType, axis: Axis, sign: int) -> Placement:
    own = (type.get(axis), second.get(axis))
    if own == (P, P):
        return P if sign == 0 else V
    if P in own and V not in own:
        addend, equal = (type, second) if own[0] is P else (second, type)
        if sign == 0:  # x/n is a term of a sum
            exponent, term = addend.exponent(axis), equal.exponent(axis)
            return P if exponent is not None and term is not None and exponent == term + 1 else V
        return P if sign > 0 or own[0] is P else V
    return V if V in own or P in own else R


def _as_term(type: TensorType, axis: Axis, place: Placement, sign: int) -> Exponent:
    """The exponent of one of two numbers: what each rank adds to a sum counts once per rank."""
    exponent = type.exponent(axis)
    counted = sign == 0 and place is P and type.get(axis) is not P
    return exponent + 1 if counted and exponent is not None else exponent


def raised(exponent: Exponent, power: float) -> Exponent:
    """The exponent of a number that is raised to a power."""
    return None if exponent is None else known_power(exponent * Fraction(power))
