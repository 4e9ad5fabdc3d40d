"""A run of the program that did not come to its end."""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.diagnostics.source_location import SourceLocation


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end.

    ``where``    ``on the mesh`` or ``on one rank``.
    ``text``     in one line: which rank, and what happened to it.
    ``location``    where in the program; None if that is not known.
    ``details``  the traceback, or where each rank hangs.
    ``apart``    the ranks have missed each other: one waits, or another has closed its connection.
    """

    where: str
    text: str
    location: SourceLocation | None = None
    details: str = ""
    apart: bool = False
