"""Numbers that know where they come from: ints and floats with a type, made only while a check runs.

A size, a group's number of ranks, an ``.item()`` is an ``int`` or ``float`` to Python and to torch, and carries a type
for as long as arithmetic keeps it: ``x.shape[0] * dist.get_world_size()`` is R and has the scale of one device. What
makes a plain number of it (``float()``, ``int()``, ``math.sqrt``) loses it, and a number of unknown origin is
compatible with everything. No plain number is touched, so nothing else becomes slower.
Source: docs/semantics.md section 9.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardwise.interop.tensors.tagging import Tag, type_of
from shardwise.op_rules.propagation.operand import may_be_count
from shardwise.types.placement import R, V
from shardwise.types.tensor_type import UNTYPED, Exponent, TensorType


def _binary(name: str, sign: int, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method for an operator. ``sign``: what a second factor's exponent counts; 0 for a sum."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: object, other: object) -> object:
        if not isinstance(other, (int, float)):
            return NotImplemented
        left, right = (other, self) if reflected else (self, other)
        value = apply(plain(left), plain(right))
        return typed(value, _combined(left, right, sign))

    return method


class _Typed:
    """What both classes have in common."""

    _shardwise: Tag

    __mul__, __rmul__ = _binary("mul", 1), _binary("mul", 1, reflected=True)
    __truediv__, __rtruediv__ = _binary("truediv", -1), _binary("truediv", -1, reflected=True)
    __floordiv__, __rfloordiv__ = _binary("floordiv", -1), _binary("floordiv", -1, reflected=True)
    __add__, __radd__ = _binary("add", 0), _binary("add", 0, reflected=True)
    __sub__, __rsub__ = _binary("sub", 0), _binary("sub", 0, reflected=True)
    __mod__, __rmod__ = _binary("mod", 0), _binary("mod", 0, reflected=True)

    def __pow__(self, power: object, modulo: object = None) -> Any:
        if not isinstance(power, (int, float)) or modulo is not None:
            return NotImplemented
        type = type_of(self)
        value = plain(self) ** plain(power)
        scale = {axis: _times(type.exponent(axis), power) for axis in type.axes}
        return typed(value, type.with_scale(scale)) if isinstance(value, (int, float)) else value

    def __neg__(self) -> Any:
        return typed(-plain(self), type_of(self))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return typed(abs(plain(self)), type_of(self))

    def __reduce__(self) -> tuple[object, ...]:
        return type(plain(self)), (plain(self),)

    def __copy__(self) -> object:
        return self

    def __deepcopy__(self, memo: object) -> object:
        return self


class TypedInt(_Typed, int):
    """An int with a type."""

    __hash__ = int.__hash__


class TypedFloat(_Typed, float):
    """A float with a type."""

    __hash__ = float.__hash__


TYPED_NUMBERS: frozenset[type] = frozenset({TypedInt, TypedFloat})


def typed(value: object, type: TensorType) -> object:
    """``value`` with a type; as it is if it is no int or float, or nothing is known of it."""
    if type is UNTYPED or not type.axes or isinstance(value, bool):
        return value
    made: Any
    if isinstance(value, int):
        made = TypedInt(value)
    elif isinstance(value, float):
        made = TypedFloat(value)
    else:
        return value
    made._shardwise = _tag(type)
    return made


@functools.lru_cache(maxsize=4096)
def _tag(type: TensorType) -> Tag:
    return Tag(type)


def plain(value: object) -> Any:
    """The number without its type."""
    if value.__class__ is TypedInt:
        return int(value)
    return float(value) if value.__class__ is TypedFloat else value


def number_type(axes: Iterable[object], scale: Mapping[object, Exponent]) -> TensorType:
    """The type of a number that is equal on every rank."""
    return TensorType.of(dict.fromkeys(axes, R), scale=scale)


def joined(values: Iterable[object]) -> TensorType:
    """The type of what is made of all of these numbers; untyped if none of them is typed."""
    numbers = list(values)
    if not any(value.__class__ in TYPED_NUMBERS for value in numbers):
        return UNTYPED
    return functools.reduce(lambda type, value: _merged(type, value, 0), numbers[1:], _type_in(numbers[0], numbers))


def _combined(left: object, right: object, sign: int) -> TensorType:
    known = left if left.__class__ in TYPED_NUMBERS else right
    return _merged(type_of(known) if known is left else _like(type_of(known), left), right, sign)


def _type_in(value: object, others: Iterable[object]) -> TensorType:
    """The type of a number beside typed ones."""
    if value.__class__ in TYPED_NUMBERS:
        return type_of(value)
    return _like(next(type_of(one) for one in others if one.__class__ in TYPED_NUMBERS), value)


def _like(type: TensorType, number: object) -> TensorType:
    """The type of a plain number: equal on every rank, and if it may be a count, of a scale that nobody knows."""
    return number_type(type.axes, dict.fromkeys(type.axes, None if may_be_count(number) else 0))


def _merged(type: TensorType, other: object, sign: int) -> TensorType:
    second = type_of(other) if other.__class__ in TYPED_NUMBERS else _like(type, other)
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


def _times(exponent: Exponent, power: float) -> Exponent:
    product = None if exponent is None else exponent * power
    return int(product) if product is not None and product == int(product) else None
