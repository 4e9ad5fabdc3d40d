"""What happens to a type error on its way out of the library? It gets its finding, and its traceback is tidied once.

Every public function that raises ``SpmdTypeError`` wears ``@boundary``. A call that stays within its types pays for
one extra Python frame and nothing else.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, ParamSpec, TypeVar

import torch

from shardwise.diagnostics.errors import SpmdTypeError, attach

from .tracebacks import filter_frames

Params = ParamSpec("Params")
Result = TypeVar("Result")


def boundary(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """``function`` as users call it: an escaping ``SpmdTypeError`` carries its finding and shows the user's frames."""

    @functools.wraps(function)
    def at_boundary(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except SpmdTypeError as error:
            if not torch.compiler.is_compiling():
                finish(error, function.__name__)
            raise

    return outermost(at_boundary)


_boundaries: set[CodeType] = set()
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def outermost(function: AnyFunction) -> AnyFunction:
    """``function``, which calls ``finish`` itself; boundaries inside it leave the traceback to it."""
    _boundaries.add(function.__code__)
    return function


def finish(error: SpmdTypeError, op: str) -> None:
    """Make ``error`` presentable; the caller re-raises it with a bare ``raise``, which adds no frame."""
    attach(error, op=op)
    if not _inside_another_boundary():
        filter_frames(error)


def _inside_another_boundary() -> bool:
    """True if a call further up will filter the traceback too; once is enough, and only that one sees all of it."""
    frame = sys._getframe(3)
    while frame is not None:
        if frame.f_code in _boundaries:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
