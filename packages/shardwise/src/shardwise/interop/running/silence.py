"""Functions on the stack: whether the calling thread executes one of them, and those that switch checking off.

Functions are known by their code, and nothing is wrapped, so this works for functions that others have imported already
and for methods that are replaced.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Set as AbstractSet
from types import CodeType, FrameType

silent_code: set[CodeType] = set()
"""The code of functions during whose execution nothing is checked."""


def code_of(function: object) -> CodeType | None:
    """The code of a function or method below its decorators; None for what has no Python code, such as a builtin."""
    plain = getattr(function, "__func__", function)
    code: CodeType | None = getattr(inspect.unwrap(plain) if callable(plain) else plain, "__code__", None)
    return code


def codes_of(*functions: object) -> frozenset[CodeType]:
    """The code of these functions, for ``is_running``."""
    return frozenset(code for function in functions if (code := code_of(function)) is not None)


def is_running(codes: AbstractSet[CodeType]) -> bool:
    """True if the calling thread executes one of these functions, however far up its stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def is_silenced() -> bool:
    """True if the calling thread executes a function during which nothing is checked."""
    return bool(silent_code) and is_running(silent_code)
