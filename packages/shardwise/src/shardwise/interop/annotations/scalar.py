"""What is a Python number that differs between ranks? A ``Scalar``: a number with a local type.

A plain number is taken to be equal on every rank. One that is not (a count of local tokens, a per-rank scale) says so
by being a Scalar. While the thread is checked, arithmetic keeps and checks the type; otherwise it gives plain numbers.

Source: docs/semantics.md section 3.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from shardwise.diagnostics.errors import SpmdArgumentError, SpmdTypeError, shown
from shardwise.diagnostics.source import user_site
from shardwise.mesh.normalize import normalize_local_type
from shardwise.types.aliases import PerMeshAxisSpmdTypesArg
from shardwise.types.placement import P, PerMeshAxisLocalSpmdType, Placement, R, V
from shardwise.types.tensor_type import UNKNOWN_TYPE, Ground, TensorType

from ..calls.boundary import boundary
from ..running.session import is_type_checking
from ..tensors.tagging import Origin, Tag, set_tag, type_of
from ..torch_call import Arguments, TorchFunction
from .asserting import settle

Number = int | float | complex


def _binary(
    symbol: str, apply: Callable[[object, object], Any], *, reflected: bool = False
) -> Callable[[Scalar, object], Any]:
    """The method for an arithmetic operator. Other operands, tensors among them, get their own turn."""

    @boundary
    def method(self: Scalar, other: object) -> object:
        if not isinstance(other, (Scalar, int, float, complex)):
            return NotImplemented
        left, right = (other, self) if reflected else (self, other)
        value = apply(_plain(left), _plain(right))
        if not is_type_checking():
            return value
        try:
            return _rebuild(value, _merged(symbol, left, right))
        except SpmdTypeError as error:
            if not settle(error, self, symbol):
                raise
            return _rebuild(value, UNKNOWN_TYPE)

    return method


class Scalar:
    """``Scalar(value, {axis: R | I | V | P})``; axes of one rank are dropped.

    Errors: a TypeError for a value that is no number, S(i) or another type that is none of the four.
    Example:
        >>> scale = Scalar(0.5, {"dp": R, "tp": V})
        >>> print(typeof(assert_type(torch.ones(4), R) * scale))
        f32[4] {dp: R, tp: V}
    """

    ndim = 0

    @boundary
    def __init__(self, value: Number, spmd_type: PerMeshAxisSpmdTypesArg) -> None:
        if not _is_number(value):
            raise SpmdArgumentError(
                f"Scalar takes an int, float or complex, got {shown(value)} of type {type(value).__name__}"
            )
        if not isinstance(spmd_type, Mapping):
            raise SpmdArgumentError(
                f"Scalar takes a dict from axes to R, I, V or P, got {shown(spmd_type)} of type "
                f"{type(spmd_type).__name__}",
                code="SW132",
            )
        self._value = value
        set_tag(self, Tag(TensorType.of(normalize_local_type(spmd_type)), Origin(user_site(), "declared here")))

    @property
    def value(self) -> Number:
        """The number on this rank."""
        return self._value

    @property
    def local_type(self) -> dict[object, PerMeshAxisLocalSpmdType]:
        """A copy of the local type."""
        return dict(type_of(self).local)

    def __repr__(self) -> str:
        return f"Scalar({self._value!r}, {type_of(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self._value, type_of(self)))

    @classmethod
    def __torch_function__(
        cls, func: TorchFunction, types: object, args: Arguments = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        # Nothing checks this call any more: the number is what the kernel needs.
        return func(*map(_plain, args), **{name: _plain(arg) for name, arg in (kwargs or {}).items()})

    def __int__(self) -> int:
        return int(self._value)  # type: ignore[arg-type]

    def __index__(self) -> int:
        return operator.index(self._value)  # type: ignore[arg-type]

    def __float__(self) -> float:
        return float(self._value)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> Any:
        return _compare(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _compare(operator.ne, self, other)

    def __lt__(self, other: object) -> object:
        return _compare(operator.lt, self, other)

    def __le__(self, other: object) -> object:
        return _compare(operator.le, self, other)

    def __gt__(self, other: object) -> object:
        return _compare(operator.gt, self, other)

    def __ge__(self, other: object) -> object:
        return _compare(operator.ge, self, other)

    __add__, __radd__ = _binary("+", operator.add), _binary("+", operator.add, reflected=True)
    __sub__, __rsub__ = _binary("-", operator.sub), _binary("-", operator.sub, reflected=True)
    __mul__, __rmul__ = _binary("*", operator.mul), _binary("*", operator.mul, reflected=True)
    __truediv__, __rtruediv__ = _binary("/", operator.truediv), _binary("/", operator.truediv, reflected=True)
    __floordiv__, __rfloordiv__ = _binary("//", operator.floordiv), _binary("//", operator.floordiv, reflected=True)
    __mod__, __rmod__ = _binary("%", operator.mod), _binary("%", operator.mod, reflected=True)
    __pow__, __rpow__ = _binary("**", operator.pow), _binary("**", operator.pow, reflected=True)

    def __neg__(self) -> object:
        return _of(-self._value, type_of(self))

    def __pos__(self) -> object:
        return _of(+self._value, type_of(self))

    @boundary
    def __abs__(self) -> object:
        pending = [axis for axis, place in type_of(self).local.items() if place.is_partial]
        if pending and is_type_checking():
            error = _not_linear("abs", pending[0])
            if not settle(error, self, "abs"):
                raise error
            return _rebuild(abs(self._value), UNKNOWN_TYPE)
        return _of(abs(self._value), type_of(self))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, complex)) and not isinstance(value, bool)


def _plain(value: object) -> object:
    return value.value if isinstance(value, Scalar) else value


def _of(value: Number, type: TensorType) -> object:
    """The result of arithmetic: a Scalar while checking, else the number."""
    return _rebuild(value, type) if is_type_checking() else value


def _rebuild(value: Number, type: TensorType) -> Scalar:
    made = object.__new__(Scalar)
    made._value = value
    set_tag(made, Tag(type, Origin(user_site(), "computed here")))
    return made


def _compare(compare: Callable[[Any, Any], object], one: Scalar, other: object) -> object:
    if isinstance(other, Scalar) or _is_number(other) or isinstance(other, bool):
        return compare(one._value, _plain(other))
    return NotImplemented


def _merged(symbol: str, left: object, right: object) -> TensorType:
    """The type of ``left symbol right``. A plain number is equal on every rank and fits R, I and V as it is."""
    if not isinstance(left, Scalar) or not isinstance(right, Scalar):
        scalar = left if isinstance(left, Scalar) else right
        for axis, place in type_of(scalar).local.items():
            if place.is_pending_sum(f"{symbol} of scalars"):
                _merge_number(symbol, axis, left, right)
        return type_of(scalar)
    one, other = type_of(left), type_of(right)
    if Ground.UNKNOWN in (one.ground, other.ground):
        return UNKNOWN_TYPE
    lone = [axis for axis in (*one.axes, *other.axes) if axis not in one or axis not in other]
    if lone:
        raise SpmdTypeError(
            f"{left!r} {symbol} {right!r}: only one of them has a type on {', '.join(map(repr, lone))}",
            code="SW134",
        )
    return TensorType.of({axis: _merge(symbol, axis, one.get(axis), other.get(axis)) for axis in one.axes})


def _merge(symbol: str, axis: object, left: Placement, right: Placement) -> object:
    """The local type of ``left symbol right`` on one axis."""
    pending = [place.is_pending_sum(f"{symbol} of scalars") for place in (left, right)]
    if not any(pending):
        if left is right:
            return left
        if {left, right} == {R, V}:
            return V
        raise SpmdTypeError(
            f"scalars that are {left} and {right} on axis {axis!r} cannot be combined by {symbol}", code="SW134"
        )
    both = left is right
    if symbol in "+-":
        if both:
            return P
        other = right if left.is_partial else left
        if other.is_varying:
            raise _partial_meets_varying(symbol, axis)
        raise SpmdTypeError(
            f"{left} {symbol} {right} on axis {axis!r}: the {other} scalar would be added once per rank", code="SW113"
        )
    if symbol not in "*/":
        raise _not_linear(symbol, axis)
    if both and symbol == "*":
        raise SpmdTypeError(
            f"P * P on axis {axis!r}: the product of two pending sums is not the pending sum of the products",
            code="SW111",
        )
    if symbol == "/" and right.is_partial:
        raise SpmdTypeError(f"the divisor is a pending sum on axis {axis!r}", code="SW114")
    other = right if left.is_partial else left
    if other is R:
        return P
    if other.is_varying:
        raise _partial_meets_varying(symbol, axis)
    raise SpmdTypeError(
        f"scalars that are {left} and {right} on axis {axis!r} cannot be combined by {symbol}", code="SW134"
    )


def _merge_number(symbol: str, axis: object, left: object, right: object) -> None:
    """Refuse a plain number where its Scalar partner is P on ``axis`` and the sum does not pass through."""
    number = right if isinstance(left, Scalar) else left
    if symbol in "+-":
        if number != 0:
            raise SpmdTypeError(
                f"{number!r} added to a scalar that is P on axis {axis!r} would be added once per rank", code="SW113"
            )
    elif symbol == "/" and number is left:
        raise SpmdTypeError(f"the divisor is a pending sum on axis {axis!r}", code="SW114")
    elif symbol not in "*/":
        raise _not_linear(symbol, axis)


def _partial_meets_varying(symbol: str, axis: object) -> SpmdTypeError:
    return SpmdTypeError(
        f"{symbol} of a pending sum and a varying scalar on axis {axis!r}: varying says nothing about sums",
        code="SW110",
    )


def _not_linear(symbol: str, axis: object) -> SpmdTypeError:
    return SpmdTypeError(f"{symbol} is not linear, and a scalar is a pending sum on axis {axis!r}", code="SW112")
