"""Guards: predicates on a call's static arguments that say when a linear law does not hold for this very call.

A guard receives the values of the rule's ``static`` parameters that were given (a tensor may be one of them, for its
dtype or its shape), under ``"dtypes"`` the operands' dtype names by parameter, and under ``"partial"`` the parameters
that are pending sums. It returns why the law fails, or None. A missing dtype counts as a floating one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..schema import Arguments, Guard

_INTEGERS = [
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "byte",
    "char",
    "short",
    "int",
    "long",
]
_INTEGER_CLASSES = ("ByteTensor", "CharTensor", "ShortTensor", "IntTensor", "LongTensor")


ROUNDS = "a cast to integers rounds each rank's part"
"""The one reason that a pending maximum or minimum does not mind: a rounding never decreases."""


def dtype_name(value: object) -> str:
    """``torch.int64`` as ``int64``; any other value as its text."""
    return str(value).removeprefix("torch.")


def is_integer(value: object) -> bool:
    name = dtype_name(value)
    return name in _INTEGERS or name.rstrip("'>").endswith(_INTEGER_CLASSES)


def is_bool(value: object) -> bool:
    name = dtype_name(value)
    return name == "bool" or name.rstrip("'>").endswith("BoolTensor")


def cast_to(source: object, targets: tuple[object, ...]) -> str | None:
    """Why partial values of dtype ``source`` may not be cast to one of ``targets``, or None."""
    if any(is_bool(target) for target in targets):
        return "a cast to bool only asks whether each rank's part is zero"
    if any(is_integer(target) for target in targets) and not is_integer(source):
        return ROUNDS
    return None


def casts(*parameters: str, source: str = "input") -> Guard:
    """Refuse a rounding cast to what any of ``parameters`` asks for, a dtype or a tensor that has one."""

    def guard(static: Arguments) -> str | None:
        dtypes: Mapping[str, str] = static.get("dtypes", {})
        given = {name: static.get(name) for name in parameters}
        targets = tuple(dtypes.get(name, getattr(value, "dtype", value)) for name, value in given.items())
        return cast_to(dtypes.get(source, "float32"), targets)

    return guard


def only(parameter: str, *allowed: object, reason: str, default: object = None) -> Guard:
    """Refuse when ``parameter`` has a value other than the ``allowed`` ones."""

    def guard(static: Arguments) -> str | None:
        value = static.get(parameter, default)
        return None if value in allowed else f"{parameter}={value!r} {reason}"

    return guard


def not_given(parameter: str, reason: str) -> Guard:
    """Refuse when ``parameter`` is given and not None."""

    def guard(static: Arguments) -> str | None:
        return None if static.get(parameter) is None else reason

    return guard


def no_dtype(*parameters: str) -> Guard:
    """Refuse when a dtype is given where a shape may be: the bits are then read as another dtype."""

    def guard(static: Arguments) -> str | None:
        given = any(type(static.get(name)).__name__ == "dtype" for name in parameters)
        return "reads each part's bits as another dtype" if given else None

    return guard


def given(parameter: str, reason: str) -> Guard:
    """Refuse when ``parameter`` is missing or None."""

    def guard(static: Arguments) -> str | None:
        return reason if static.get(parameter) is None else None

    return guard


def needs(present: str, beside: str, reason: str) -> Guard:
    """Refuse when tensor ``beside`` is given and tensor ``present`` is not."""

    def guard(static: Arguments) -> str | None:
        dtypes: Mapping[str, str] = static.get("dtypes", {})
        return reason if beside in dtypes and present not in dtypes else None

    return guard


def floating(reason: str, source: str = "input") -> Guard:
    """Refuse integers, of which each rank's quotient is rounded."""

    def guard(static: Arguments) -> str | None:
        return reason if is_integer(static.get("dtypes", {}).get(source, "float32")) else None

    return guard


def pending(parameter: str, *guards: Guard) -> Guard:
    """What ``guards`` say, asked only when ``parameter`` is a pending sum."""
    inner = first_of(*guards)

    def guard(static: Arguments) -> str | None:
        return inner(static) if parameter in static.get("partial", ()) else None

    return guard


def first_of(*guards: Guard) -> Guard:
    """The first reason that any of ``guards`` gives."""

    def guard(static: Arguments) -> str | None:
        return next((reason for each in guards if (reason := each(static)) is not None), None)

    return guard


def always_casts(target: str, *, source: str = "input") -> Guard:
    """For an operator that is a cast to ``target`` by its name."""

    def guard(static: Arguments) -> str | None:
        return cast_to(static.get("dtypes", {}).get(source, "float32"), (target,))

    return guard
