"""The types of numbers: what two of them make, whatever the numbers are."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from shardwise.op_rules.propagation.operand import may_be_count
from shardwise.op_rules.propagation.scale import known_power
from shardwise.types.placement import R, V
from shardwise.types.tensor_type import Exponent, TensorType


def number_type(axes: Iterable[object], scale: Mapping[object, Exponent]) -> TensorType:
    """The type of a number that is equal on every rank."""
    return TensorType.of(dict.fromkeys(axes, R), scale=scale)


def like(type: TensorType, number: object) -> TensorType:
    """The type of a plain number: equal on every rank, and if it may be a count, of a scale that nobody knows."""
    return number_type(type.axes, dict.fromkeys(type.axes, None if may_be_count(number) else 0))


@functools.lru_cache(maxsize=4096)
def merged(type: TensorType, second: TensorType, sign: int) -> TensorType:
    """The type of what two numbers make. ``sign``: what the second one's exponent counts; 0 for a sum."""
    if not all(one is two or one.isorthogonal(two) for one in type.axes for two in second.axes):
        return type if type.varying_axes else second  # no mesh says yet how these axes lie to each other
    axes = {*type.axes, *second.axes}
    places = {axis: V if type.is_varying(axis) or second.is_varying(axis) else R for axis in axes}
    scale: dict[Any, Exponent] = {}
    for axis in axes:
        one, two = type.exponent(axis), second.exponent(axis)
        if one is None or two is None:
            scale[axis] = None
        elif sign == 0:
            scale[axis] = one if one == two else None
        else:
            scale[axis] = one + sign * two
    return TensorType.of(places, scale=scale)


def raised(exponent: Exponent, power: float) -> Exponent:
    """The exponent of a number that is raised to a power."""
    return None if exponent is None else known_power(exponent * Fraction(power))
