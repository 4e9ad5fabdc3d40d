"""Is this thread being checked, and where do findings go? The one piece of state that rooms to the right share.

The checker pushes a ``Session`` when it starts; annotation functions and collectives ask ``current()``. The stack is
thread-local, so two threads may check two programs. ``erased`` turns the whole annotation layer off for production.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final, Protocol

import torch
import typing_extensions

from shardwise.diagnostics.source import add_internal_prefix
from shardwise.types.errors import SpmdTypeError

from .silence import is_silenced, silent_code

# Call sites are looked for in the user's program; torch's own frames are not it.
add_internal_prefix(os.path.dirname(os.path.abspath(torch.__file__)) + os.sep)
add_internal_prefix(typing_extensions.__file__)  # torch's deprecated functions are wrapped by it

erased: bool = os.environ.get("SHARDWISE_ERASE") == "1"
"""True: annotation functions return at once and no tensor is ever tagged. Set it before the program starts."""


class Session(Protocol):
    """What the annotation functions and collectives need to know of a running check."""

    paused: bool

    @property
    def strict(self) -> bool: ...

    @property
    def local(self) -> bool:
        """True if local types alone are followed, and no shards."""

    @property
    def collecting(self) -> bool:
        """True if findings are collected and the program goes on; False if they are raised."""

    def report(self, error: SpmdTypeError) -> None:
        """Take an error that carries its finding: raise it, or collect it and return."""

    def trust(self, what: str, location: Any) -> None:
        """Note something that is believed and not proven, for the list in the report."""


class _Local(threading.local):
    session: Session | None = None


_local = _Local()


def current() -> Session | None:
    """The session that checks this thread now; None when checking is off or paused."""
    session = _local.session
    if session is None or session.paused or (silent_code and is_silenced()):
        return None
    return session


def this_thread() -> Session | None:
    """The session of this thread, paused or not."""
    return _local.session


def enter(session: Session | None) -> Session | None:
    """Make ``session`` this thread's session and return the previous one, to be restored with another call."""
    previous = _local.session
    _local.session = session
    return previous


def is_type_checking() -> bool:
    """True while the calling thread is being checked. Under torch.compile it is the constant False."""
    return not torch.compiler.is_compiling() and current() is not None


class _TypeChecking:
    """True exactly while the calling thread is being checked."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return is_type_checking()

    def __repr__(self) -> str:
        return f"TYPE_CHECKING({bool(self)})"


TYPE_CHECKING: Final = _TypeChecking()
