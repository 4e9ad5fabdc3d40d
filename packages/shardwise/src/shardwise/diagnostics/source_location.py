"""Source locations, and what findings say at them: operands of a call, and the hops by which they got their types."""

from __future__ import annotations

import io
from dataclasses import dataclass


def lines_of(text: str, *, ends: bool = True) -> list[str]:
    """The lines of a source as Python and editors count them: no form feed, and nothing else of Unicode, ends one.

    ``ends``  with what ends them.
    """
    lines = io.StringIO(text, newline="").readlines()
    return lines if ends else [line.rstrip("\r\n") for line in lines]


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A span of source: 1-based lines, 0-based columns as Python's own; columns are None when unknown."""

    file: str
    line: int
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = ""

    def __str__(self) -> str:
        column = "" if self.column is None else f":{self.column + 1}"
        return f"{self.file}:{self.line}{column}"


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of provenance: ``text`` says what happened at ``location``, e.g. ``partial over tp since here``."""

    text: str
    location: SourceLocation


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of the offending call.

    ``name``   as written in the source (``h``, ``self.weight``), else the parameter's name.
    ``type``   the full typed shape, e.g. ``f32[4, 512] {dp: V, tp: P}``.
    ``location``  the operand's own span; None when it cannot be told.
    ``origin`` where the operand got its type, nearest first, at most two hops.
    """

    name: str
    type: str
    location: SourceLocation | None = None
    origin: tuple[Hop, ...] = ()
