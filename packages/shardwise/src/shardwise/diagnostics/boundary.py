"""How does an error become a finding? The one place that turns a raised ``SpmdTypeError`` into the frozen value.

Whoever raises says the code, the message and the remedies; whoever stands at the edge of the library knows the
operator, the axis and the operands, and calls ``attach``. An error that has its finding already keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardwise.types.errors import SpmdTypeError, set_finding_maker

from .codes import CODES
from .finding import Finding, Operand, SourceLocation
from .source import location_of_traceback, user_location

_FALLBACK = "SW905"


def attach(
    error: SpmdTypeError,
    *,
    location: SourceLocation | None = None,
    op: str = "",
    axis: str = "",
    operands: Iterable[Operand] = (),
    facts: Iterable[str] = (),
) -> Finding:
    """The finding of ``error``, made now unless it has one.

    The message's first line is the headline, further lines become facts. Without ``location`` it is the innermost call
    in the user's own code: that of the traceback if the error has left it, else the one that is running.
    """
    if isinstance(error.attached, Finding):
        return error.attached
    if location is None:
        location = location_of_traceback(error.__traceback__) or user_location()
    first, *more = error.message.splitlines() or [""]
    finding = Finding(
        code=error.code if error.code in CODES else _FALLBACK,
        message=first,
        location=location,
        op=op,
        axis=axis,
        operands=tuple(operands),
        facts=(*(line.strip() for line in more if line.strip()), *facts),
        help=tuple(error.help),
    )
    error.finding = finding
    return finding


set_finding_maker(attach)
