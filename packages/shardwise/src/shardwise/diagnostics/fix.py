"""Fixes: what a line of help changes in the source, as values. Who applies them knows how a file says our names."""

from __future__ import annotations

from dataclasses import dataclass

from .source_location import SourceLocation


@dataclass(frozen=True, slots=True)
class Wrap:
    """An expression becomes the first argument of a transition: ``op(<expression>, axis, src=src, dst=dst)``.

    ``location``  the span of the expression.
    ``axis``      as a program may spell it; ``src`` and ``dst`` are placements, as they are printed.
    """

    location: SourceLocation
    op: str
    axis: str
    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Fix:
    """The edits that carry out ``help``, one of the lines of help of a finding."""

    help: str
    wraps: tuple[Wrap, ...]
