"""Fixes: what a line of help changes in the source, as values. Who applies them knows how a file says our names."""

from __future__ import annotations

from dataclasses import dataclass

from .source_location import SourceLocation


@dataclass(frozen=True, slots=True)
class Wrap:
    """An expression becomes the first argument of a transition: ``op(<expression>, axis, src=src, dst=dst)``.

    ``location``  the span of the expression.
    ``axis``      as a program may spell it; ``src`` and ``dst`` are placements, as they are printed.
    ``options``   further arguments, as ``op="avg"``.
    """

    location: SourceLocation
    op: str
    axis: str
    src: str
    dst: str
    options: str = ""


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
class Rewrite:
    """An expression becomes another text, in which ``{}`` is what stands there: ``"{}.detach()"``.

    ``spmd.R`` is a public name of ours in it, and ``dist`` is ``torch.distributed``.
    """

    location: SourceLocation
    text: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call gets another value, is given, or is left out where ``value`` is empty.

    ``location``  the span of the call.
    ``position``  where it stands if it is not given by name; -1 if it is always.
    ``value``     says ``spmd`` and ``dist`` as ``Rewrite`` does.
    """

    location: SourceLocation
    name: str
    value: str
    position: int = -1


@dataclass(frozen=True, slots=True)
class Insert:
    """Statements before the one that a call is in.

    ``location``  the span of the call.
    ``lines``     the statements, indented from the first column on; they say ``spmd`` and ``dist`` as ``Rewrite`` does.
    """

    location: SourceLocation
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """A statement that is nothing but a call, or divides what is on its left, is left out.

    ``location``  the span of the call, or of the statement that divides.
    """

    location: SourceLocation


@dataclass(frozen=True, slots=True)
class Leave:
    """The statement that a call is in, or the loop that is nothing but that, moves behind a loop around it.

    Where the same statement stands behind that loop already it is only left out.

    ``location``  the span of the call; ``loop`` that of something in the body of the loop that it leaves.
    """

    location: SourceLocation
    loop: SourceLocation


@dataclass(frozen=True, slots=True)
class Within:
    """The statement that a call is in runs inside of ``with context:``.

    ``location``  the span of the call.
    ``context``   says ``spmd`` as ``Rewrite`` does.
    """

    location: SourceLocation
    context: str


Edit = Wrap | Replace | Rewrite | Argument | Insert | Remove | Leave | Within


@dataclass(frozen=True, slots=True)
class Fix:
    """The edits that carry out ``help``, one of the lines of help of a finding.

    ``choice``  they say what only the program's author knows, as what a tensor is, or which of two sums is meant. Types
                that are clean after it prove nothing, so nobody makes it unasked unless the numbers do.
    """

    help: str
    edits: tuple[Edit, ...] = ()
    choice: bool = False
