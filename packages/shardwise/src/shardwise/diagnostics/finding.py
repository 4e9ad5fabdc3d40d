"""Findings: frozen values that say what is wrong, where, with which operands, and what would mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .codes import CODES, Severity
from .finding_text import render
from .source_location import Operand, SourceLocation


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

    def at(
        self, location: SourceLocation | None, op: str = "", axis: str = "", operands: Iterable[Operand] = ()
    ) -> Finding:
        """The finding that it is about a call at ``location``."""
        return Finding(self.code, self.message, location, op, axis, tuple(operands), self.facts, self.help)


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
        return render(self)

    @property
    def headline(self) -> str:
        """The first line of the report, which stands alone in a CI log."""
        return f"{self.code} {self.name}: {self.message}"
