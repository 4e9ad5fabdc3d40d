"""Source files of a run as lines for a page: text in pieces, types, findings, and what is left out of long files."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.diagnostics.excerpt import character_column, end_character_column
from shardwise.diagnostics.finding import Finding, shown_path
from shardwise.diagnostics.printing.printable import clean
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.run_record import NamedTypes, RunRecord

from .annotated_source import files_of, shown_lines

WHOLE_FILE = 1500
"""Lines of a file that is shown whole; of a longer one the stretches with a type or a finding are."""
LONGEST_LINE = 1000


@dataclass(frozen=True, slots=True)
class SourceLine:
    """``parts`` are (text, is marked); ``skipped`` lines before this one are left out."""

    number: int
    parts: tuple[tuple[str, bool], ...]
    values: tuple[NamedTypes, ...]
    findings: tuple[tuple[int, Finding], ...]
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """``index`` is part of the name of each of its lines; ``skipped`` lines after the last are left out."""

    index: int
    path: str
    lines: tuple[SourceLine, ...]
    skipped: int = 0

    @property
    def findings(self) -> int:
        return sum(len(line.findings) for line in self.lines)


def source_files(result: RunResult, root: str) -> list[SourceFile]:
    """The files that have something to show, the script first."""
    record = result.record or RunRecord()
    return [_file(at, file, record, result.findings, root) for at, file in enumerate(files_of(result))]


def _file(index: int, file: str, record: RunRecord, findings: Sequence[Finding], root: str) -> SourceFile:
    source = [text.rstrip("\r\n") for text in linecache.getlines(file)]
    values = record.by_line(file)
    here: dict[int, list[tuple[int, Finding]]] = {}
    for number, finding in ((at, place) for at, one in enumerate(findings, 1) for place in one.places):
        if finding.location is not None and finding.location.file == file:
            here.setdefault(finding.location.line, []).append((number, finding))
    told = {line for line in (*values, *here) if line <= len(source)}
    shown = range(1, len(source) + 1) if len(source) <= WHOLE_FILE else sorted(shown_lines(len(source), told))
    lines, previous = [], 0
    for number in shown:
        found = tuple(here.get(number, ()))
        parts = _parts(source[number - 1], [finding for _, finding in found])
        lines.append(SourceLine(number, parts, tuple(values.get(number, ())), found, number - previous - 1))
        previous = number
    return SourceFile(index, shown_path(file, root), tuple(lines), len(source) - previous)


def _parts(text: str, findings: Sequence[Finding]) -> tuple[tuple[str, bool], ...]:
    """The line cut at the span of the first finding."""
    if len(text) > LONGEST_LINE:
        text = text[:LONGEST_LINE] + "..."
    location = findings[0].location if findings else None
    start = None if location is None else character_column(location)
    if location is None or start is None:
        return ((clean(text), False),)
    one_line = location.end_line in (None, location.line)
    end = (end_character_column(location) if one_line else None) or len(text) + 1
    parts = ((text[: start - 1], False), (text[start - 1 : end - 1], True), (text[end - 1 :], False))
    return tuple((clean(part), marked) for part, marked in parts if part)
