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
class Replace:
    """A call becomes another transition of its operand, ``op(<operand>, axis, src=src, dst=dst)``, or the operand.

    ``location``  the span of the call.
    ``operand``   the span of the operand, which lies in it.
    ``op``        empty if the operand takes the place of the call; then ``axis``, ``src`` and ``dst`` are empty too.
    """

    location: SourceLocation
    operand: SourceLocation
    op: str = ""
    axis: str = ""
    src: str = ""
    dst: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    """Statements before the one that a call is in.

    ``location``  the span of the call.
    ``lines``     the statements, indented from the first column on; ``dist`` is ``torch.distributed`` in them.
    """

    location: SourceLocation
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """A statement that is nothing but a call is left out.

    ``location``  the span of the call.
    """

    location: SourceLocation


Edit = Wrap | Replace | Insert | Remove


@dataclass(frozen=True, slots=True)
class Fix:
    """The edits that carry out ``help``, one of the lines of help of a finding."""

    help: str
    wraps: tuple[Wrap, ...] = ()
    replaces: tuple[Replace, ...] = ()
    inserts: tuple[Insert, ...] = ()
    removes: tuple[Remove, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All of them."""
        return (*self.wraps, *self.replaces, *self.inserts, *self.removes)
