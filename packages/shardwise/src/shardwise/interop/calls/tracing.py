"""What did each typed call do? One log line per call: where, which types went in, which type came out.

    model.py:88  matmul(f32[4, 8@tp] {dp: R}, f32[8@tp, 2] {dp: R}) -> f32[4, 2] {dp: R, tp: P}

The switch belongs to the thread; ``SHARDWISE_TRACE=1`` (or the reference's ``SPMD_TYPES_TRACE``) turns it on for every
thread from the start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence

from shardwise.diagnostics.source import Site
from shardwise.types.tensor_type import UNTYPED

LOGGER = logging.getLogger("shardwise.trace")


class _Local(threading.local):
    enabled: bool = os.environ.get("SHARDWISE_TRACE", os.environ.get("SPMD_TYPES_TRACE")) == "1"


_local = _Local()


class _Anywhere:
    """``blocks``: how many threads are inside ``trace()``; read on the hot path, where a thread's own flag is dear."""

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks = int(_Local.enabled)


anywhere = _Anywhere()
_counting = threading.Lock()


def is_tracing() -> bool:
    """True if calls on this thread are to be passed to ``log_call``."""
    return _local.enabled


@contextlib.contextmanager
def trace(enabled: bool = True) -> Iterator[None]:
    """Log typed calls of this thread inside the ``with`` block, or stop logging them.

    Example:
        >>> with trace():
        ...     y = assert_type(torch.ones(4), {"tp": R}) * 2
    """
    before = _local.enabled
    _local.enabled = bool(enabled)
    with _counting:
        anywhere.blocks += _local.enabled
    try:
        yield
    finally:
        with _counting:
            anywhere.blocks -= bool(enabled)
        _local.enabled = before


def log_call(site: Site | None, op: str, operand_types: Sequence[object], result_type: object) -> None:
    """Log one call. Types are ``TypedShape``s or ``TensorType``s; None for a result that is not a tensor.

    A call in which nothing is typed is not worth a line. Ask ``is_tracing()`` first: the arguments are not free.
    """
    if all(_is_blank(one) for one in (*operand_types, result_type)):
        return
    _make_visible()
    operands = ", ".join(_text(one) for one in operand_types)
    LOGGER.info("%s  %s(%s) -> %s", location(site), op, operands, _text(result_type))


def location(site: Site | None) -> str:
    """``path:line`` of a call, the path relative to the longest folder of ``sys.path`` that it lies in."""
    if site is None:
        return "?:0"
    location = site.location()
    folders = [folder.rstrip(os.sep) + os.sep for folder in sys.path if folder]
    prefix = max((folder for folder in folders if location.file.startswith(folder)), key=len, default="")
    return f"{location.file[len(prefix) :]}:{location.line}"


def _is_blank(typed: object) -> bool:
    return typed is None or getattr(typed, "type", typed) is UNTYPED


def _text(typed: object) -> str:
    if getattr(typed, "type", None) is UNTYPED and "{" not in str(typed):
        return f"{typed} {{}}"
    return str(typed)


def _make_visible() -> None:
    """Whoever asked for a trace gets one, also in a program that never configured logging."""
    if not LOGGER.isEnabledFor(logging.INFO):
        LOGGER.setLevel(logging.INFO)
    if not LOGGER.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        LOGGER.addHandler(handler)
