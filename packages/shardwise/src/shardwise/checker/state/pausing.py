"""How is a running check switched off and on again for a stretch of code?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shardwise.interop.session import Session


@contextlib.contextmanager
def paused(session: Session, pause: bool = True) -> Iterator[None]:
    """``session`` checks nothing inside the ``with`` block (or, with ``pause=False``, checks again)."""
    before = session.paused
    session.paused = pause
    try:
        yield
    finally:
        session.paused = before
