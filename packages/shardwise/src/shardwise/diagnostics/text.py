"""How does a person read a finding? The terminal form: headline, source with marks, notes, help.

Nothing here looks at a running program: a finding is a value, source comes from ``linecache``. What is left out and
how to see it is decided in ``limits`` alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from .codes import Severity
from .excerpt import Mark, character_column, excerpt, source_line
from .finding import Finding, Operand, SourceLocation
from .limits import DEFAULT, Limits, counted, rest
from .paint import Line, paint
from .printable import safe_str
from .ranks import ranks_text
from .result import ExitCode, RunResult

WIDTH = 120

_CARET_LABELS = {
    "SW111": "the product of sums is not the sum of products",
    "SW112": "non-linear in {operand}",
    "SW113": "added once per rank",
    "SW115": "reads one rank's share of the sum",
    "SW116": "may differ between ranks",
    "SW120": "would change the type of what it writes to",
    "SW121": "draws different numbers on each rank",
    "SW601": "counts the gradient once per rank",
}
"""Said under the call where it adds to the headline; ``{operand}`` is the name of the one culprit."""


def render(
    finding: Finding, *, color: bool = False, width: int = WIDTH, root: str | None = None, limits: Limits = DEFAULT
) -> str:
    """One finding as text without a final newline; paths under ``root`` (default: here) are shown relative to it."""
    return paint(_finding(finding, width, _root(root), limits), color=color)


def render_result(
    result: RunResult, *, color: bool = False, width: int = WIDTH, root: str | None = None, limits: Limits = DEFAULT
) -> str:
    """A whole run: findings, why it ended early, what was trusted, and the summary in the last line."""
    root = _root(root)
    blocks = [_finding(finding, width, root, limits) for finding in result.findings[: limits.findings]]
    more = rest(len(result.findings), limits.findings, "finding", "findings")
    if more:
        blocks.append([[("quiet", more)]])
    if result.ending is not None:
        blocks.append(_finding(result.ending, width, root, limits))
    if result.no_rule_ops:
        blocks.append(_no_rule_ops(result, limits))
    if result.trusted:
        blocks.append(_trusted(result, root, limits))
    blocks.append([_summary(result)])
    lines: list[Line] = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return paint(lines, color=color)


def shown_path(file: str, root: str) -> str:
    """``file`` relative to ``root`` if it lies below it."""
    path = os.path.abspath(file) if not file.startswith("<") else file
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    return safe_str(os.path.relpath(path, root) if inside else path)


def location_text(location: SourceLocation, root: str) -> str:
    """``file:line:column`` with the column in characters from 1, which editors understand."""
    column = character_column(location)
    return f"{shown_path(location.file, root)}:{location.line}" + ("" if column is None else f":{column}")


def _root(root: str | None) -> str:
    return os.path.abspath(root if root is not None else os.getcwd())


def _finding(finding: Finding, width: int, root: str, limits: Limits) -> list[Line]:
    style = "error" if finding.severity is Severity.ERROR else "warning"
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
            lines.append([("gutter", f"{margin}::: "), ("", location_text(here[0].location, root))])
        lines += excerpt(here, gutter=gutter, width=width)
    for kind, text in (*notes, *_tail(finding)):
        first, *others = text.splitlines() or [""]
        lines.append([("gutter", f"{margin} = "), (_KIND_STYLES[kind], f"{kind}: "), ("", safe_str(first))])
        lines += [[("", f"{margin}   {'':{len(kind)}}  {safe_str(line)}")] for line in others]
    return lines


_KIND_STYLES = {"note": "strong", "help": "help", "more": "quiet"}


def _tail(finding: Finding) -> Iterable[tuple[str, str]]:
    if finding.count > 1:
        yield "note", f"{finding.count} times at this place"
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
    for operand in finding.operands if not _across_ranks(finding) else _elsewhere(finding):
        told = _operand_marks(operand)
        readable = [mark for mark in told if source_line(mark.location) is not None]
        marks += readable
        if not readable:
            notes.append(_described(operand, root))
    shown = [*_limited(notes, limits.operand_notes, "operand"), *_limited(finding.facts, limits.facts, "fact")]
    return marks, [("note", note) for note in shown]


def _limited(notes: Sequence[str], limit: int | None, what: str) -> Iterable[str]:
    yield from notes[:limit]
    more = rest(len(notes), limit, what, f"{what}s")
    if more:
        yield more


def _operand_marks(operand: Operand) -> list[Mark]:
    """An operand is introduced where it got its type; at its use, if that is not known or it got it indirectly."""
    if operand.name == operand.type:
        return [] if operand.location is None else [Mark(operand.location)]  # a literal says all there is
    typed = f"{safe_str(operand.name)}: {safe_str(operand.type)}"
    hops = [hop for hop in operand.origin if source_line(hop.location) is not None]
    if not hops:
        return [] if operand.location is None else [Mark(operand.location, typed)]
    first, *others = hops
    later = [Mark(hop.location, safe_str(hop.text)) for hop in others]
    if operand.location is None or _speaks_of(operand.name, first.location):
        return [Mark(first.location, f"{typed}, {safe_str(first.text)}"), *later]
    derived = f"{safe_str(first.text)}; {safe_str(operand.name)} follows from it"
    return [Mark(first.location, derived), Mark(operand.location, typed), *later]


def _speaks_of(name: str, location: SourceLocation) -> bool:
    """Does the line of ``location`` make or mention the operand, or something that the operand was made from?"""
    return re.search(rf"(?<![\w.]){re.escape(str(name))}(?!\w)", source_line(location) or "") is not None


def _described(operand: Operand, root: str) -> str:
    hops = "".join(f", {safe_str(hop.text)} ({location_text(hop.location, root)})" for hop in operand.origin)
    return f"{safe_str(operand.name)}: {safe_str(operand.type)}{hops}"


def _caret_label(finding: Finding) -> str:
    if _across_ranks(finding):
        return "; ".join(f"{one.name}: {one.type}" for one in finding.operands if one.location == finding.location)
    label = _CARET_LABELS.get(finding.code, "")
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


def _no_rule_ops(result: RunResult, limits: Limits) -> list[Line]:
    shown = [f"{safe_str(op)} ({counted(count, 'call')})" for op, count in result.no_rule_ops[: limits.no_rule_ops]]
    lines: list[Line] = [[("strong", "operators without a rule: "), ("", ", ".join(shown))]]
    more = rest(len(result.no_rule_ops), limits.no_rule_ops, "operator", "operators")
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def _trusted(result: RunResult, root: str, limits: Limits) -> list[Line]:
    lines: list[Line] = [[("strong", "trusted, not proven:")]]
    for trusted in result.trusted[: limits.trusted]:
        text = f"  {safe_str(trusted.what)}"
        if trusted.location is not None:
            text += f" ({location_text(trusted.location, root)})"
        lines.append([("", text + (f", {trusted.count} times" if trusted.count > 1 else ""))])
    more = rest(len(result.trusted), limits.trusted, "trusted entry", "trusted entries")
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def _summary(result: RunResult) -> Line:
    errors, warnings = len(result.errors), len(result.warnings)
    said = [counted(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
    lines = {(f.location.file, f.location.line) for f in result.findings if f.location is not None}
    found = ", ".join(said) + (f" in {counted(len(lines), 'line')}" if said and lines else "")
    checked = f"{counted(result.checked_ops, 'operation')} checked, {result.unchecked_ops} unchecked"
    verdict = {ExitCode.CLEAN: "clean", ExitCode.FINDINGS: "", ExitCode.BROKEN: "no verdict"}[result.exit_code]
    style = {ExitCode.CLEAN: "good", ExitCode.FINDINGS: "error", ExitCode.BROKEN: "error"}[result.exit_code]
    head = ", ".join(part for part in (verdict, found) if part)
    where = f" on mesh {safe_str(result.mesh)}" if result.mesh else ""
    if result.ranks:
        where += f"; {ranks_text(result.ranks)} compared in {counted(result.collectives, 'call')}"
    return [(style, head), ("", f"; {checked}{where}")]
