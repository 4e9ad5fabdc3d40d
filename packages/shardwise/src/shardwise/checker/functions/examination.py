"""Functions of the program are run to look at them: nothing that they do then counts as done by the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shardwise.host.bound_values import nothing_told
from shardwise.interop.running.recording import unheard
from shardwise.interop.running.session import paused

from ..state.session import CheckSession


@contextlib.contextmanager
def examined(session: CheckSession) -> Iterator[None]:
    """Inside the block ``session`` checks nothing, nothing is recorded, and no line's types are told."""
    with paused(session), unheard(), nothing_told():
        yield
