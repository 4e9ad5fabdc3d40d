"""Which frames does a person see when a type error escapes? Those of the program, unless asked otherwise.

Modes, chosen per thread by ``traceback_filtering`` and at the start by ``SHARDWISE_TRACEBACK_FILTERING``:

    off                  every frame
    tracebackhide        every frame is there; pytest and IPython are told to skip the internal ones
    quiet_remove_frames  internal frames are taken out, and a note says how to see them
    remove_frames        the same, and the whole traceback is kept as the error's cause
    auto                 tracebackhide under pytest or IPython, else quiet_remove_frames
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from shardwise.diagnostics.errors import SpmdTypeError, SpmdValueError, shown
from shardwise.diagnostics.source import is_internal

MODES = ("off", "tracebackhide", "quiet_remove_frames", "remove_frames", "auto")
VARIABLE = "SHARDWISE_TRACEBACK_FILTERING"
NOTE = f"internal frames are left out of this traceback; {VARIABLE}=off shows everything"


class UnfilteredStackTrace(Exception):
    """Carries the traceback as it was before internal frames were taken out."""


class _Local(threading.local):
    mode: str = os.environ.get(VARIABLE, os.environ.get("SPMD_TYPES_TRACEBACK_FILTERING", "auto"))


_local = _Local()


def traceback_filtering(mode: str = "auto") -> AbstractContextManager[None]:
    """Choose the mode for this thread inside the ``with`` block.

    Errors: SW905 (also a ValueError) for an unknown mode.
    Example:
        >>> with traceback_filtering("off"):
        ...     y = torch.ones(4) * 2
    """
    return _filtering(_checked(mode))


@contextlib.contextmanager
def _filtering(mode: str) -> Iterator[None]:
    before = _local.mode
    _local.mode = mode
    try:
        yield
    finally:
        _local.mode = before


def _checked(mode: str) -> str:
    if not isinstance(mode, str) or mode not in MODES:
        raise SpmdValueError(f"unknown traceback filtering mode {shown(mode)}, expected one of {', '.join(MODES)}")
    return mode


def _resolve(mode: str) -> str:
    if _checked(mode) != "auto":
        return mode
    return "tracebackhide" if "pytest" in sys.modules or "IPython" in sys.modules else "quiet_remove_frames"


def filter_frames(error: SpmdTypeError) -> None:
    """Apply this thread's mode to the traceback of ``error``; re-raise it afterwards with a bare ``raise``."""
    mode = _resolve(_local.mode)
    if mode == "off" or error.__traceback__ is None:
        return
    if mode == "tracebackhide":
        for step in _steps(error.__traceback__):
            if is_internal(step.tb_frame.f_code):
                step.tb_frame.f_locals["__tracebackhide__"] = True
        return
    if mode == "remove_frames":
        whole = UnfilteredStackTrace("the traceback with the frames of shardwise and torch")
        whole.__cause__ = error.__cause__
        error.__cause__ = whole.with_traceback(error.__traceback__)
    error.note = NOTE
    error.__traceback__ = _of_the_user(error.__traceback__)


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _of_the_user(traceback: TracebackType) -> TracebackType | None:
    rebuilt: TracebackType | None = None
    for step in reversed(list(_steps(traceback))):
        if not is_internal(step.tb_frame.f_code):
            rebuilt = TracebackType(rebuilt, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return rebuilt
