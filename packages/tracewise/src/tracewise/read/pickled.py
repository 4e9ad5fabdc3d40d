"""Plain values out of a pickle, read as data: an opcode that could name, import or call anything is refused.

torch writes flight-recorder dumps as pickles of dicts, lists, numbers and texts; ``pickle.load`` would run whatever a
forged one says.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

MAX_BYTES = 1 << 30
MAX_OPCODES = 200_000_000
VALUES = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False,
}  # fmt: skip
LITERALS = frozenset(
    (
        "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
        "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
        "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    )
)  # fmt: skip
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


class PickleError(ValueError):
    """The pickle is damaged, or is more than plain values; the message says which."""


def plain_values(data: bytes) -> Any:
    """The value of a pickle of plain values. PickleError for anything else."""
    if len(data) > MAX_BYTES:
        raise PickleError(f"{len(data)} bytes, more than the limit of {MAX_BYTES}")
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            name = opcode.name
            if name == "STOP":
                value = stack.pop()
                if stack or value is _MARK:
                    raise PickleError("values are left over at its end")
                return value
            if count > MAX_OPCODES:
                raise PickleError(f"more than {MAX_OPCODES} steps")
            _step(name, argument, position, stack, memo)
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise PickleError(f"damaged: {error}") from None
    raise PickleError("damaged: it has no end")


def _step(name: str, argument: Any, position: int | None, stack: list[Any], memo: dict[int, Any]) -> None:
    # The order is that of how often they occur in a dump.
    if name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[int(argument)])
    elif name in LITERALS:
        stack.append(argument)
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[int(argument)] = _top(stack)
    elif name == "MEMOIZE":
        memo[len(memo)] = _top(stack)
    elif name in EMPTY:
        stack.append(EMPTY[name]())
    elif name in VALUES:
        stack.append(VALUES[name])
    elif name in ("SETITEMS", "SETITEM"):
        items = _since_mark(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
        _of_type(stack, dict).update(zip(items[::2], items[1::2], strict=True))
    elif name in ("APPENDS", "APPEND"):
        items = _since_mark(stack) if name == "APPENDS" else [stack.pop()]
        _of_type(stack, list).extend(items)
    elif name == "ADDITEMS":
        items = _since_mark(stack)
        _of_type(stack, set).update(items)
    elif name in TUPLES:
        count = TUPLES[name]
        if len(stack) < count or _MARK in stack[-count:]:
            raise PickleError("damaged: a tuple without its values")
        stack[-count:] = [tuple(stack[-count:])]
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name == "LIST":
        stack.append(_since_mark(stack))
    elif name == "DICT":
        items = _since_mark(stack)
        stack.append(dict(zip(items[::2], items[1::2], strict=True)))
    elif name not in ("PROTO", "FRAME"):
        raise PickleError(
            f"opcode {name} at byte {position}: only plain values are read, nothing is imported or called"
        )


def _top(stack: list[Any]) -> Any:
    if stack[-1] is _MARK:
        raise PickleError("damaged: no value to remember")
    return stack[-1]


def _of_type(stack: list[Any], kind: type) -> Any:
    if type(stack[-1]) is not kind:
        raise PickleError(f"damaged: items for a {kind.__name__} where there is none")
    return stack[-1]


def _since_mark(stack: list[Any]) -> list[Any]:
    for start in range(len(stack) - 1, -1, -1):
        if stack[start] is _MARK:
            items = stack[start + 1 :]
            del stack[start:]
            return items
    raise PickleError("damaged: items without a begin")
