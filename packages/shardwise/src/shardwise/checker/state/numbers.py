"""Numbers that know where they come from: ints and floats with a type, made only while a check runs.

A size, a group's number of ranks, the number of a rank, an ``.item()`` is an ``int`` or ``float`` to Python and to
torch, and carries a type for as long as arithmetic keeps it: ``x.shape[0] * dist.get_world_size()`` is R and has the
scale of one device, ``dist.get_rank() // 2`` is known on every rank. What makes a plain number of it (a comparison;
``math.sqrt``, ``int()`` and ``float()`` outside the program's own files) loses it, and a number of unknown origin is
compatible with everything. No plain number is touched, so nothing else becomes slower.
Source: docs/semantics.md sections 9 and 10.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.source import is_library_calling, user_location
from shardwise.interop.running.session import current
from shardwise.interop.tensors.tagging import Tag, type_of
from shardwise.interop.torch_compat import register_container
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.entry import current_entry
from shardwise.mesh.regions import reinterpret
from shardwise.types.placement import R
from shardwise.types.tensor_type import UNTYPED, TensorType

from .number_types import differing_axes, like, merged, number_type, raised
from .session import CheckSession

ByRank = tuple[int | float, ...]
"""A number on every rank of the world."""


class _Untyped(threading.local):
    """Entered where nobody asks for the types of numbers, so that none are made."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1


untyped_numbers = _Untyped()


def _binary(name: str, sign: int, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method for an operator. ``sign``: what a second factor's exponent counts; 0 for a sum."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: object, other: object) -> object:
        if not isinstance(other, (int, float)):
            return _repeated(other, self) if name == "mul" else NotImplemented
        left, right = (other, self) if reflected else (self, other)
        value = apply(plain(left), plain(right))
        if untyped_numbers.depth:
            return value
        type = _combined(left, right, sign)
        return typed(value, type, _on_all_ranks(apply, left, right), _as_written(type, left, right, sign))

    return method


def _power(base: object, power: object) -> object:
    """By a power that varies, as a rank's number does, it is on no scale that anyone knows."""
    if not isinstance(base, (int, float)) or not isinstance(power, (int, float)):
        return NotImplemented
    value = plain(base) ** plain(power)
    if power.__class__ in TYPED_NUMBERS and differing_axes(type_of(power)):
        type = _combined(base, power, 0).of_unknown_scale()
    elif base.__class__ not in TYPED_NUMBERS:
        return value  # of a step's number, say: the same on all ranks
    else:
        finite = isinstance(power, int) or math.isfinite(power)
        own = type_of(base)
        type = own.with_scale({axis: raised(own.exponent(axis), power) if finite else None for axis in own.axes})
    return typed(value, type, _on_all_ranks(operator.pow, base, power))


def _repeated(items: object, times: object) -> object:
    """A list as many times as a shard is long, which knows that it is; of anything else Python's own product."""
    if type(items) is not list or not isinstance(times, int) or not shared_along(times):
        return NotImplemented
    made: RepeatedList = list.__new__(RepeatedList)
    made.extend(items * plain(times))
    made.times = times
    return made


def _unary(apply: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The method for an operator that keeps the scale."""

    def method(self: Any) -> object:
        return typed(apply(plain(self)), type_of(self), known_by_rank(apply, self), self.written)

    return method


def _rounded(number: float, digits: int | None = None) -> object:
    return _unary(functools.partial(round, ndigits=digits))(number)


def _comparison(name: str) -> Callable[[object, object], bool]:
    """The method for a comparison; where its answer differs between ranks, its line is remembered."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: object, other: object) -> bool:
        if not isinstance(other, (int, float)):
            return NotImplemented  # type: ignore[no-any-return]  # a tensor compares by its elements
        if not is_library_calling():
            _note_compared(type_of(self), _on_all_ranks(apply, self, other))
        return bool(apply(plain(self), plain(other)))

    return method


def _note_compared(type: TensorType, answers: ByRank | None) -> None:
    session, place = current(), user_location(2)
    if isinstance(session, CheckSession) and answers is not None and place is not None:
        for axis in type.varying_axes:
            if differs(answers, axis):
                session.compared.setdefault(axis, set()).add((place.file, place.line))


class _Typed:
    """What both classes have in common.

    ``by_rank``  the number on every rank, if that is known.
    ``written``  its type if the plain numbers that it is made of are the same for any number of ranks; None: the type
                 says it. Nobody knows the scale of ``heads // n``, but written so it is a share of the heads.
    """

    _shardwise: Tag
    by_rank: ByRank | None = None
    written: TensorType | None = None

    __mul__, __rmul__ = _binary("mul", 1), _binary("mul", 1, reflected=True)
    __truediv__, __rtruediv__ = _binary("truediv", -1), _binary("truediv", -1, reflected=True)
    __floordiv__, __rfloordiv__ = _binary("floordiv", -1), _binary("floordiv", -1, reflected=True)
    __add__, __radd__ = _binary("add", 0), _binary("add", 0, reflected=True)
    __sub__, __rsub__ = _binary("sub", 0), _binary("sub", 0, reflected=True)
    __mod__, __rmod__ = _binary("mod", 0), _binary("mod", 0, reflected=True)
    __and__, __rand__ = _binary("and_", 0), _binary("and_", 0, reflected=True)
    __or__, __ror__ = _binary("or_", 0), _binary("or_", 0, reflected=True)
    __xor__, __rxor__ = _binary("xor", 0), _binary("xor", 0, reflected=True)
    __lshift__, __rlshift__ = _binary("lshift", 0), _binary("lshift", 0, reflected=True)
    __rshift__, __rrshift__ = _binary("rshift", 0), _binary("rshift", 0, reflected=True)
    __neg__, __abs__ = _unary(operator.neg), _unary(abs)
    __round__: Callable[..., Any] = _rounded
    __trunc__, __floor__, __ceil__ = _unary(math.trunc), _unary(math.floor), _unary(math.ceil)

    __eq__, __ne__ = _comparison("eq"), _comparison("ne")
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("lt", "le", "gt", "ge"))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        _note_lost("int", self)
        return int.__int__(self) if isinstance(self, int) else int(plain(self))

    def __float__(self) -> float:
        _note_lost("float", self)
        return float(plain(self))

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if isinstance(other, (int, float)) else NotImplemented

    def __pow__(self, power: object, modulo: object = None) -> Any:
        return NotImplemented if modulo is not None else _power(self, power)

    __rpow__: Callable[..., Any] = lambda self, base: _power(base, self)

    def __pos__(self) -> Any:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return type(plain(self)), (plain(self),)

    def __copy__(self) -> object:
        return self

    def __deepcopy__(self, memo: object) -> object:
        return self


def _plainly(make: type, given: object) -> object:
    session = current()
    if session is not None:
        session.trust(lost_by(make.__name__), user_location(2))
    return make(plain(given))


class TypedInt(_Typed, int):
    """An int with a type. Called, as ``type(number)(value)`` in ``statistics`` does, it makes a plain one."""

    __hash__ = int.__hash__

    def __new__(cls, given: object = 0) -> object:  # type: ignore[misc]
        return _plainly(int, given)


class TypedFloat(_Typed, float):
    """A float with a type; called, it makes a plain one."""

    __hash__ = float.__hash__

    def __new__(cls, given: object = 0.0) -> object:  # type: ignore[misc]
        return _plainly(float, given)


class RepeatedList(list[Any]):
    """``[row] * x.shape[0]``: a list whose items are there as often as ``times``, a number with a type, says.

    Called, as ``type(value)(items)`` in libraries does, it makes a plain list.
    """

    times: int

    def __new__(cls, items: Iterable[object] = ()) -> list[object]:  # type: ignore[misc]
        return list(items)

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


register_container(RepeatedList, list)


TYPED_NUMBERS: frozenset[type] = frozenset({TypedInt, TypedFloat})


def typed(value: object, type: TensorType, by_rank: ByRank | None = None, written: TensorType | None = None) -> object:
    """``value`` with a type; as it is if it is no int or float, or nothing is known of it.

    ``by_rank``  the number on every rank of the world: along an axis on which these are equal, it is R.
    """
    if type is UNTYPED or not type.axes or isinstance(value, bool):
        return value
    made: Any
    if isinstance(value, int):
        made = int.__new__(TypedInt, value)
        roots = [axis for axis, exponent in type.scale.items() if isinstance(exponent, Fraction)]
        if roots:  # rounded: the side of a square grid of ranks is a size of two axes, and the root of none
            type = type.with_scale(dict.fromkeys(roots))
    elif isinstance(value, float):
        made = float.__new__(TypedFloat, value)
    else:
        return value
    made._shardwise = _tag(type)
    made.by_rank = by_rank
    made.written = written
    return made


def type_here(number: Any) -> TensorType:
    """The type of a typed number as the current mesh says it; untyped where that cannot say it."""
    return _here(type_of(number), number.by_rank)


def shared_along(number: object) -> frozenset[MeshAxis]:
    """The axes of the current mesh along which a typed number, as written, is one n-th of that on one device."""
    type = _written_here(number)
    return frozenset(axis for axis in type.axes if type.exponent(axis) == -1)


def written_of(number: object) -> TensorType | None:
    """What ``typed`` was told of how the number is written."""
    return number.written if isinstance(number, _Typed) else None


def _written_here(number: object) -> TensorType:
    return _here(written_of(number) or type_of(number), getattr(number, "by_rank", None))


def _here(type: TensorType, by_rank: ByRank | None) -> TensorType:
    mesh = current_entry()
    return _said(type, by_rank, None if mesh is None else mesh.axes)


def key_of_number(number: Any) -> tuple[object, ...]:
    """What a verdict that no plain value decides depends on."""
    return number._shardwise.type, number.by_rank, number.written, plain(number) == 0


@functools.lru_cache(maxsize=4096)
def _said(type: TensorType, by_rank: ByRank | None, axes: frozenset[MeshAxis] | None) -> TensorType:
    if axes is not None and not axes.issuperset(type.axes):
        try:
            type = reinterpret(type, axes)
        except SpmdTypeError:
            return UNTYPED
    equal = [axis for axis in type.varying_axes if by_rank is not None and not differs(by_rank, axis)]
    return type.with_placements(dict.fromkeys(equal, R)) if equal else type


def combined(apply: Callable[[Any, Any], Any], left: object, right: object) -> object:
    """What ``apply`` makes of two numbers that it adds, or chooses one of; what is no number is left to it."""
    if not all(isinstance(value, (int, float)) for value in (left, right)):
        return apply(left, right)
    if not any(value.__class__ in TYPED_NUMBERS for value in (left, right)):
        return apply(left, right)
    value, type = apply(plain(left), plain(right)), _combined(left, right, 0)
    return typed(value, type, _on_all_ranks(apply, left, right), _as_written(type, left, right, 0))


def differs(by_rank: ByRank, axis: MeshAxis) -> bool:
    """True if ranks that are apart along ``axis`` only have different numbers."""
    return any(
        by_rank[rank] != by_rank[rank + stride]
        for size, stride in axis.layout.atoms
        for rank in range(len(by_rank) - stride)
        if rank // stride % size < size - 1
    )


def known_by_rank(apply: Callable[[float], float], number: object) -> ByRank | None:
    """What ``apply`` gives of a typed number on every rank, if that is known."""
    by_rank: ByRank | None = getattr(number, "by_rank", None)
    return None if by_rank is None else tuple(map(apply, by_rank))


def _note_lost(call: str, number: object) -> None:
    """A plain number is made of one that differs, or is off the scale, where nothing stands in for ``call``."""
    session, type = current(), type_of(number)
    if session is not None and (differing_axes(type) or any(type.scale.values())) and not is_library_calling(2):
        session.trust(lost_by(call), user_location(2))


def lost_by(call: str) -> str:
    """What a report says of a plain number that ``call`` makes."""
    return f"{call}() of what varies, or is off the scale: its type is lost"


def _on_all_ranks(apply: Callable[[Any, Any], Any], left: object, right: object) -> ByRank | None:
    """What ``apply`` gives on every rank; None if an operand is not known there."""
    known = [getattr(value, "by_rank", None) for value in (left, right)]
    ranks = next((len(values) for values in known if values is not None), 0)
    if not ranks:
        return None
    operands = []
    for value, values in zip((left, right), known, strict=True):
        if values is None and value.__class__ in TYPED_NUMBERS and differing_axes(type_of(value)):
            return None
        operands.append([plain(value)] * ranks if values is None else values)
    try:
        return tuple(map(apply, *operands))
    except (ArithmeticError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _tag(type: TensorType) -> Tag:
    return Tag(type)


def plain(value: object) -> Any:
    """The number without its type."""
    if value.__class__ is TypedInt:
        return int.__int__(value)
    return float.__float__(value) if value.__class__ is TypedFloat else value


def joined(values: Iterable[object]) -> TensorType:
    """The type of what is made of all of these numbers, on the current mesh; untyped if none of them is typed."""
    numbers = list(values)
    types = [type_here(value) if value.__class__ in TYPED_NUMBERS else None for value in numbers]
    told = [type for type in types if type is not None and type.axes]
    if not told:
        return UNTYPED
    read = (like(told[0], value) if type is None else type for type, value in zip(types, numbers, strict=True))
    return functools.reduce(lambda one, two: merged(one, two, 0), read)


def _combined(left: object, right: object, sign: int) -> TensorType:
    """The type of what is made of two numbers, one of which is typed at least."""
    one, two = (type_of(value) if value.__class__ in TYPED_NUMBERS else None for value in (left, right))
    if one is not None and two is not None and one.axes != two.axes and current_entry() is not None:
        one, two = type_here(left), type_here(right)
    first = one or two
    assert first is not None, "a plain number has no method of ours"
    if sign == 0 and 0 in (left if one is None else None, right if two is None else None):
        return first  # the sum begins with it
    return merged(like(first, left) if one is None else one, like(first, right) if two is None else two, sign)


def _as_written(type: TensorType, left: object, right: object, sign: int) -> TensorType | None:
    """The type of what is made of two numbers if plain ones are as on one device; None if ``type`` says it."""
    if None not in map(type.exponent, type.axes):
        return None
    one, two = (_written_here(value) if value.__class__ in TYPED_NUMBERS else None for value in (left, right))
    same = number_type((one or two or UNTYPED).axes, {})
    return merged(same if one is None else one, same if two is None else two, sign)
