"""What is a finding? A frozen value that says what is wrong, where, with which operands, and what would mend it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .codes import CODES, Severity


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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is said about one mistake, wherever in a program it is made: the words of ``code``, said once.

    ``message``  lower case, no full stop, meaningful alone; names the offence and the operand.
    ``facts``    numbers and arithmetic behind the verdict, one line each.
    ``help``     repairs that can be pasted.
    """

    code: str
    message: str
    facts: tuple[str, ...] = ()
    help: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One independent mistake.

    ``code``     ``SW`` and three digits; name and severity follow from it.
    ``message``  lower case, no full stop, meaningful alone; names the offence and the operand.
    ``location``    span of the offending call in the user's program; None if it was not made by a Python frame.
    ``op``       canonical operator, e.g. ``gelu``; empty when no operator is involved.
    ``axis``     the mesh axis at fault as printed, or empty.
    ``facts``    numbers and arithmetic behind the verdict, one line each.
    ``help``     repairs that can be pasted; each was run through the checker before it was offered.
    ``count``    how many calls at this location had this same cause.
    ``ranks``    the ranks that say so, where several were checked and not all of them do.
    """

    code: str
    message: str
    location: SourceLocation | None = None
    op: str = ""
    axis: str = ""
    operands: tuple[Operand, ...] = ()
    facts: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    count: int = field(default=1, compare=False)
    ranks: tuple[int, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The offence in kebab-case."""
        return CODES[self.code].name

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    def __str__(self) -> str:
        """The whole finding as plain text: headline, source, facts, help."""
        from .text import render  # the printer needs this module

        return render(self)

    @property
    def headline(self) -> str:
        """The first line of the report, which stands alone in a CI log."""
        return f"{self.code} {self.name}: {self.message}"
