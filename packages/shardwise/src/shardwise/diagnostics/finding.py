"""Findings: frozen values that say what is wrong, where, with which operands, and what would mend it; and their text.

The terminal form of one finding: headline, source with marks, notes, help. Nothing here looks at a running program:
source comes from ``linecache``. What is left out and how to see it is decided in ``limits`` alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .codes import CODES, Severity
from .excerpt import Mark, character_column, excerpt, source_line
from .printing.limits import DEFAULT, Limits, rest
from .printing.paint import Line, paint
from .printing.printable import safe_str
from .printing.ranks import ranks_text
from .source_location import Hop, Operand, SourceLocation

if TYPE_CHECKING:
    from .fix import Fix

WIDTH = 120
ENDS_PROGRAM = "the program ends with this exception: what comes after it was not checked"
"""A fact of the finding with which a program ends."""
_MODULES = 3


@dataclass(frozen=True, slots=True)
class Unsummed:
    """The sum over an axis that a gradient misses, whatever takes it so.

    ``arrived``   the call of backward by which it arrived.
    ``gradient``  its name; empty for all that such a step takes.
    """

    arrived: SourceLocation
    gradient: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is said about one mistake, wherever in a program it is made: the words of ``code``, said once.

    ``message``  lower case, no full stop, meaningful alone; names the offence and the operand.
    ``facts``    numbers and arithmetic behind the verdict, one line each.
    ``help``     repairs that can be pasted.
    ``fixes``    those of them that are known as edits of the source.
    ``unsummed`` the missing sum of a gradient that it is about, if it is about one.
    """

    code: str
    message: str
    facts: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    unsummed: Unsummed | None = None

    def at(
        self, location: SourceLocation | None, op: str = "", axis: str = "", operands: Iterable[Operand] = ()
    ) -> Finding:
        """The finding that it is about a call at ``location``."""
        said = (self.facts, self.help, self.fixes)
        return Finding(self.code, self.message, location, op, axis, tuple(operands), *said, unsummed=self.unsummed)


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
    ``fixes``    those of them that are known as edits of the source.
    ``count``    how many calls at this location had this same cause.
    ``ranks``    the ranks that say so, where several were checked and not all of them do.
    ``modules``  paths of the modules in whose calls it was made, as ``layers.3.mlp``.
    ``alike``    the other places with the same cause; help and fixes are for all of them.
    ``unsummed`` the missing sum of a gradient that it is about; others that miss it have the same cause.
    ``configured``  the severity that the project gives the code, if it is another than the code's own.
    """

    code: str
    message: str
    location: SourceLocation | None = None
    op: str = ""
    axis: str = ""
    operands: tuple[Operand, ...] = ()
    facts: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    count: int = field(default=1, compare=False)
    ranks: tuple[int, ...] = field(default=(), compare=False)
    modules: tuple[str, ...] = field(default=(), compare=False)
    alike: tuple[Finding, ...] = field(default=(), compare=False)
    unsummed: Unsummed | None = field(default=None, compare=False)
    configured: Severity | None = field(default=None, compare=False)

    @property
    def places(self) -> tuple[Finding, ...]:
        """A finding for each place: itself, and those that are alike."""
        return (self, *self.alike)

    @property
    def name(self) -> str:
        """The offence in kebab-case."""
        return CODES[self.code].name

    @property
    def severity(self) -> Severity:
        return self.configured or CODES[self.code].severity

    def __str__(self) -> str:
        """The whole finding as plain text: headline, source, facts, help."""
        return render(self)

    @property
    def headline(self) -> str:
        """The first line of the report, which stands alone in a CI log."""
        return f"{self.code} {self.name}: {self.message}"


def render(
    finding: Finding, *, color: bool = False, width: int = WIDTH, root: str | None = None, limits: Limits = DEFAULT
) -> str:
    """One finding as text without a final newline; paths under ``root`` (default: here) are shown relative to it."""
    return paint(finding_lines(finding, width, absolute_root(root), limits), color=color)


def shown_path(file: str, root: str) -> str:
    """``file`` relative to ``root`` if it lies below it."""
    path = os.path.abspath(file) if not file.startswith("<") else file
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    return safe_str(os.path.relpath(path, root) if inside else path)


def location_text(location: SourceLocation, root: str) -> str:
    """``file:line:column`` with the column in characters from 1, which editors understand."""
    column = character_column(location)
    return f"{shown_path(location.file, root)}:{location.line}" + ("" if column is None else f":{column}")


def absolute_root(root: str | None) -> str:
    """The folder to which paths are shown relative: the one given, or the current one."""
    return os.path.abspath(root if root is not None else os.getcwd())


def in_brackets(location: SourceLocation | None) -> str:
    """`` (file:line:column)``, relative to the current folder, to stand behind what is there; empty if unknown."""
    return "" if location is None else f" ({location_text(location, absolute_root(None))})"


def finding_lines(finding: Finding, width: int, root: str, limits: Limits) -> list[Line]:
    """One finding, laid out: headline, source with marks, notes, help."""
    style = {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(finding.severity, "strong")
    title = f"{finding.code} {finding.name}"
    lines: list[Line] = [[(style, title), ("strong", f": {safe_str(finding.message)}")]]
    marks, notes = _marks(finding, root, limits)
    shown = [mark for mark in marks if source_line(mark.location) is not None]
    gutter = max((len(str(mark.location.line)) for mark in shown), default=1)
    margin = " " * gutter
    if finding.location is not None:
        lines.append([("gutter", f"{margin}--> "), ("", location_text(finding.location, root))])
    files = _by_file(shown, finding.location)
    for file, here in files.items():
        if finding.location is not None and file == finding.location.file:
            lines.append([("gutter", f"{margin} |")])
        else:
            top = min((mark.location for mark in here), key=lambda location: location.line)
            lines.append([("gutter", f"{margin}::: "), ("", location_text(top, root))])
        lines += excerpt(here, gutter=gutter, width=width)
    for kind, text in (*notes, *_tail(finding)):
        first, *others = text.splitlines() or [""]
        lines.append([("gutter", f"{margin} = "), (_KIND_STYLES[kind], f"{kind}: "), ("", safe_str(first))])
        lines += [[("", f"{margin}   {'':{len(kind)}}  {safe_str(line)}")] for line in others]
    return lines


_KIND_STYLES = {"note": "strong", "help": "help", "more": "quiet"}


def _tail(finding: Finding) -> Iterable[tuple[str, str]]:
    times = f"{finding.count} times at this place" if finding.count > 1 else ""
    if finding.modules:
        shown, more = finding.modules[:_MODULES], len(finding.modules) - _MODULES
        names = ", ".join(safe_str(name) for name in shown) + (f" and {more} more" if more > 0 else "")
        noun = "module" if len(finding.modules) == 1 else "modules"
        yield "note", f"in {noun} {names}{', ' if times else ''}{times}"
    elif times:
        yield "note", times
    if finding.ranks:
        yield "note", f"on {ranks_text(finding.ranks)} only"
    for text in finding.help:
        yield "help", text
    yield "more", f"shardwise explain {finding.code}"


def _by_file(marks: list[Mark], main: SourceLocation | None) -> dict[str, list[Mark]]:
    """The marks of each file, the file of the offending call first."""
    files: dict[str, list[Mark]] = {main.file: []} if main is not None else {}
    for mark in marks:
        files.setdefault(mark.location.file, []).append(mark)
    return {file: here for file, here in files.items() if here}


def _marks(finding: Finding, root: str, limits: Limits) -> tuple[list[Mark], list[tuple[str, str]]]:
    """What is underlined and, for want of a location or of source, what becomes a note."""
    marks: list[Mark] = []
    notes: list[str] = []
    if finding.location is not None:
        marks.append(Mark(finding.location, _caret_label(finding), primary=True))
    followers: dict[Hop, list[str]] = {}
    made: dict[Hop, dict[str, None]] = {}
    for operand in finding.operands if not _across_ranks(finding) else _elsewhere(finding):
        if _is_literal(operand):
            # Its text says all there is; one that the message does not name is none of the reader's business.
            if operand.location is not None and operand.name in finding.message:
                marks.append(Mark(operand.location))
            continue
        hops = [hop for hop in operand.origin if source_line(hop.location) is not None]
        if hops and _is_made(operand, hops[0]):
            made.setdefault(hops[0], {})[_typed(operand)] = None
        marks += _operand_marks(operand, hops)
        if hops and not _is_made(operand, hops[0]):
            followers.setdefault(hops[0], []).append(safe_str(operand.name))
            if operand.location is None:
                notes.append(_typed(operand))
        elif not hops and (operand.location is None or source_line(operand.location) is None):
            notes.append(_described(operand, root))
    for hop, typed in made.items():
        each = "each " if len(typed) > 1 else ""
        marks.append(Mark(hop.location, f"{'; '.join(typed)}, {each}{safe_str(hop.text)}"))
    for hop, names in followers.items():
        said = f"{', '.join(names)} follow{'s' if len(names) == 1 else ''} from it"
        marks.append(Mark(hop.location, f"{safe_str(hop.text)}; {said}"))
    for other in finding.alike[: limits.places]:
        if other.location is not None:
            code = "" if other.code == finding.code else f"{other.code} {other.name}"
            marks.append(Mark(other.location, _caret_label(other) or code, primary=True))
    more = rest(len(finding.alike), limits.places, "place", "places")
    shown = [
        *([more] if more else []),
        *_limited(notes, limits.operand_notes, "operand"),
        *_limited(finding.facts, limits.facts, "fact"),
    ]
    return marks, [("note", note) for note in shown]


def _limited(notes: Sequence[str], limit: int | None, what: str) -> Iterable[str]:
    yield from notes[:limit]
    more = rest(len(notes), limit, what, f"{what}s")
    if more:
        yield more


def _operand_marks(operand: Operand, hops: Sequence[Hop]) -> list[Mark]:
    """An operand that is not introduced where it is made is so at its use; what happened before is told there."""
    later = [Mark(hop.location, safe_str(hop.text)) for hop in hops[1:]]
    if operand.location is None or (hops and _is_made(operand, hops[0])):
        return later
    return [Mark(operand.location, _typed(operand)), *later]


def _typed(operand: Operand) -> str:
    return f"{safe_str(operand.name)}: {safe_str(operand.type)}"


def _is_literal(operand: Operand) -> bool:
    """Is it a number as the source has it, ``1e-6``, whose value is ``1e-06``?"""
    if operand.name == operand.type:
        return True
    try:
        return float(operand.name) == float(operand.type)
    except (TypeError, ValueError):
        return False


def _is_made(operand: Operand, hop: Hop) -> bool:
    """Does the line of ``hop`` make or mention the operand? A gradient arrives there, where no line names it."""
    arrives = operand.location is None and operand.name.endswith(".grad")
    return arrives or _speaks_of(operand.name, hop.location)


def _speaks_of(name: str, location: SourceLocation) -> bool:
    """Does the line of ``location`` make or mention the operand, or something that the operand was made from?"""
    return re.search(rf"(?<![\w.]){re.escape(str(name))}(?!\w)", source_line(location) or "") is not None


def _described(operand: Operand, root: str) -> str:
    hops = "".join(f", {safe_str(hop.text)} ({location_text(hop.location, root)})" for hop in operand.origin)
    return f"{_typed(operand)}{hops}"


def _caret_label(finding: Finding) -> str:
    if _across_ranks(finding):
        return "; ".join(f"{one.name}: {one.type}" for one in finding.operands if one.location == finding.location)
    label = CODES[finding.code].label
    if "{operand}" not in label:
        return label
    partial = [operand for operand in finding.operands if f"{finding.axis}: P" in safe_str(operand.type)]
    culprits = {safe_str(operand.name) for operand in partial or finding.operands}
    return label.format(operand=culprits.pop()) if len(culprits) == 1 else ""


def _across_ranks(finding: Finding) -> bool:
    """Is it about calls of several ranks? Its operands are those calls, and that of the first line is one of them."""
    return finding.code.startswith("SW5")


def _elsewhere(finding: Finding) -> Sequence[Operand]:
    return [operand for operand in finding.operands if operand.location != finding.location]
