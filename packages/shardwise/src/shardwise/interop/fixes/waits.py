"""What waits for a collective or a message that was started: a line that does, or a call that does not return early."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.diagnostics.fix import Argument, Fix, Insert, Rewrite
from shardwise.diagnostics.source import Site
from shardwise.diagnostics.source_location import SourceLocation

from .expressions import call_at, expression_of, holder_of, keyword_of

_MESSAGES = ("isend", "irecv")


def wait_before(location: SourceLocation | None, handle: object, help: str) -> tuple[Fix, ...]:
    """A wait before the statement at ``location``, where that knows the handle of what was started."""
    if location is None or handle is None:
        return ()
    name = expression_of(handle)
    if name is not None:
        return (Fix(help, (Insert(location, (f"{name}.wait()",)),)),)
    name = holder_of(handle)
    if name is None:
        return ()
    return (Fix(help, (Insert(location, (f"for handle in {name}:", "    handle.wait()")),)),)


def done_at_once(site: Site | None, name: str, helps: Sequence[str]) -> tuple[Fix, ...]:
    """What was started at ``site`` is done when the call returns; ``helps`` of messages, and of collectives."""
    location = None if site is None else site.location()
    call = call_at(location)
    if location is None or call is None:
        return ()
    if name in _MESSAGES:
        return (Fix(helps[0], (Rewrite(location, "{}.wait()"),)),)
    if keyword_of(call, "async_op") is None:
        return ()
    return (Fix(helps[1], (Argument(location, "async_op", ""),)),)
