"""Who wants to see the program's tensors as they are made? Nobody, except under ``shardwise verify``.

One slot holds the listener. Without one, each of these functions is a test of that slot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Listener(Protocol):
    """What ``verify`` offers to those who know of a tensor worth comparing."""

    def hear(self, kind: str, name: str, x: Any) -> None:
        """``x`` is a tensor of this kind, with its type on it; the place is where the user's program is now."""


_listener: Listener | None = None


def checkpoint_value(name: str, x: T) -> T:
    """Have ``shardwise verify`` compare ``x``, a tensor, with the run on one rank. Returns ``x``.

    ``name``  what it is called in the report; in a loop the calls are numbered.

    Outside of verify nothing happens.
    """
    if _listener is not None:
        _listener.hear("value", str(name), x)
    return x


def declared(x: Any, by: str) -> None:
    """``x`` has just been given a type on somebody's word: ``by`` is whose."""
    if _listener is not None:
        _listener.hear("declared", by, x)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Everything of this process that is worth comparing goes to ``listener`` inside the ``with`` block."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
