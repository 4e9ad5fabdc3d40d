"""Is this thread being checked, and where do findings go? The one piece of state that rooms to the right share.

The checker pushes a ``Session`` when it starts; annotation functions and collectives ask ``current()``. The stack is
thread-local, so two threads may check two programs.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from shardwise.types.errors import SpmdTypeError


class Session(Protocol):
    """What the annotation functions and collectives need to know of a running check."""

    strict: bool
    paused: bool
    collecting: bool
    """True if findings are collected and the program goes on; False if they are raised."""

    def report(self, error: SpmdTypeError) -> None:
        """Take an error that carries its finding: raise it, or collect it and return."""

    def trust(self, what: str, place: Any) -> None:
        """Note something that is believed and not proven, for the list in the report."""


class _Local(threading.local):
    session: Session | None = None
    trace: bool | None = None


_local = _Local()


def current() -> Session | None:
    """The session that checks this thread now; None when checking is off or paused."""
    session = _local.session
    return None if session is None or session.paused else session


def enter(session: Session | None) -> Session | None:
    """Make ``session`` this thread's session and return the previous one, to be restored with another call."""
    previous = _local.session
    _local.session = session
    return previous
