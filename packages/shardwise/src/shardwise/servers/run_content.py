"""What an editor shows of a run: diagnostics, fixes, inlay types, the history of a tensor, where a type came from."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from shardwise.diagnostics.codes import Severity
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.source_location import SourceLocation, lines_of
from shardwise.rewriting.file_edit import read_source

from .moved_lines import moved_lines
from .positions import covers, overlaps, range_of, utf8_column

if TYPE_CHECKING:
    from shardwise.diagnostics.fix import Edit, Fix
    from shardwise.diagnostics.run_record import NamedTypes

SOURCE = "shardwise"
LONGEST_LABEL = 60
SHOWN_TYPES = 8
_SEVERITY = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}


@dataclass
class RunContent:
    """A finished run, with the text of its files as they were: what is shown stays at the lines where it was found.

    Methods that take the text of the editor answer in its lines; of lines that have changed since nothing is said.
    """

    result: RunResult
    folder: Path
    _paths: dict[str, Path] = field(default_factory=dict)
    _texts: dict[Path, str] = field(default_factory=dict)
    _lines: dict[Path, list[str]] = field(default_factory=dict)
    _values: dict[Path, list[tuple[NamedTypes, types.Range]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file in self.result.record.files if self.result.record is not None else ():
            self.text(self._path(file))  # before the next save

    def path(self, location: SourceLocation) -> Path:
        """The file of ``location``."""
        return self._path(location.file)

    def _path(self, file: str) -> Path:
        if file not in self._paths:
            self._paths[file] = (self.folder / file).resolve()
        return self._paths[file]

    def text(self, path: Path) -> str:
        """The text of a file, read when it is first asked for; empty if it cannot be."""
        if path not in self._texts:
            try:
                self._texts[path] = read_source(path)
            except (OSError, UnicodeDecodeError):
                self._texts[path] = ""
        return self._texts[path]

    def range(self, location: SourceLocation) -> types.Range:
        """The span of ``location`` as an editor counts."""
        path = self.path(location)
        if path not in self._lines:
            self._lines[path] = lines_of(self.text(path), ends=False)
        return range_of(location, self._lines[path])

    def link(self, location: SourceLocation) -> types.Location:
        """Where ``location`` is, for a client."""
        return types.Location(self.path(location).as_uri(), self.range(location))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the run, and why it came to no end, if it did not."""
        ending = self.result.ending
        return (*self.result.findings, *([ending] if ending is not None else []))

    def diagnostics(self, script: Path) -> dict[Path, list[types.Diagnostic]]:
        """By file; a finding that is nowhere is at the first line of ``script``."""
        found: dict[Path, list[types.Diagnostic]] = defaultdict(list)
        for finding in (place for one in self.findings for place in one.places):
            path = script if finding.location is None else self.path(finding.location)
            found[path].append(self.diagnostic(finding))
        return found

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        """One finding: its headline, facts and help; operands and where they got their types are related places."""
        start = types.Range(types.Position(0, 0), types.Position(0, 0))
        notes = [*(f"note: {fact}" for fact in finding.facts), *(f"help: {text}" for text in finding.help)]
        if finding.count > 1:
            notes.insert(0, f"note: {finding.count} times at this place")
        return types.Diagnostic(
            range=start if finding.location is None else self.range(finding.location),
            severity=_SEVERITY[finding.severity],
            code=finding.code,
            source=SOURCE,
            message="\n".join([f"{finding.name}: {finding.message}", *notes]),
            related_information=[
                types.DiagnosticRelatedInformation(self.link(location), text)
                for location, text in self._related(finding)
            ],
        )

    def _related(self, finding: Finding) -> Iterator[tuple[SourceLocation, str]]:
        for operand in finding.operands:
            typed = f"{operand.name}: {operand.type}"
            if operand.location is not None:
                yield operand.location, typed
            for hop in operand.origin:
                yield hop.location, f"{typed}, {hop.text}"

    def actions(self, path: Path, span: types.Range, text: str) -> list[types.CodeAction]:
        """The fixes of findings on the lines of ``span``; none if the file has changed since the run."""
        actions = []
        if text != self.text(path):
            return []
        for finding in self.result.findings:
            places = [place.location for place in finding.places if place.location is not None]
            if not any(self.path(place) == path and overlaps(self.range(place), span) for place in places):
                continue
            edits = [(fix, edit) for fix in finding.fixes if (edit := self._edit(fix)) is not None]
            for number, (fix, edit) in enumerate(edits, 1):
                choice = f" (choice {number} of {len(edits)})" if len(edits) > 1 or fix.choice else ""
                actions.append(
                    types.CodeAction(
                        title=f"{finding.code}{choice}: {fix.help}",
                        kind=types.CodeActionKind.QuickFix,
                        is_preferred=len(edits) == 1 and not fix.choice,
                        diagnostics=[self.diagnostic(finding)],
                        edit=edit,
                    )
                )
        return actions

    def _edit(self, fix: Fix) -> types.WorkspaceEdit | None:
        from shardwise.rewriting.editing import edited

        by_file: dict[Path, list[Edit]] = defaultdict(list)
        for one in fix.edits:
            by_file[self.path(one.location)].append(one)
        changes: dict[str, list[types.TextEdit]] = {}
        for path, edits in by_file.items():
            before = self.text(path)
            after = edited(before, edits) if before else None
            if after is None:
                return None
            changes[path.as_uri()] = text_edits(before, after)
        return types.WorkspaceEdit(changes=changes)

    def values(self, path: Path) -> list[tuple[NamedTypes, types.Range]]:
        """What the lines of a file bind, with where the names stand, in the order of the lines."""
        record = self.result.record
        if path not in self._values:
            found = [
                (value, self.range(value.location))
                for value in (() if record is None else record.values)
                if value.location is not None and self.path(value.location) == path
            ]
            self._values[path] = sorted(found, key=lambda one: (one[1].start.line, one[1].start.character))
        return self._values[path]

    def hints(self, path: Path, span: types.Range, text: str) -> list[types.InlayHint]:
        """The types of what the lines of ``span`` bind, behind the names; else with the name behind the statement."""
        moved = moved_lines(self.text(path), text)
        return [
            types.InlayHint(
                position=now.end,
                label=f"{'' if self._stands_at(value.name, path, at) else f'  {value.name}'}: {_short(value.text)}",
                kind=types.InlayHintKind.Type,
                tooltip=types.MarkupContent(types.MarkupKind.Markdown, _all_types(value)),
                padding_right=True,
            )
            for value, at in self.values(path)
            if (now := moved.range_now(at)) is not None and overlaps(now, span)
        ]

    def _stands_at(self, name: str, path: Path, span: types.Range) -> bool:
        """Does the file, as it was run, have ``name`` at ``span``? What a call changes need not be mentioned."""
        return word_at(self.text(path), span.end) == name

    def hover(self, path: Path, position: types.Position, text: str) -> types.Hover | None:
        """What is known of the name at ``position``: its types, and the lines that have bound it before."""
        name, moved = word_at(text, position), moved_lines(self.text(path), text)
        at_run = moved.position_then(position)
        if at_run is None:
            return None
        position = at_run
        parts: list[str] = []
        bound = self._bindings(path, position, name)
        if bound:
            value = bound[-1][0]
            parts.append(f"```text\n{value.name}: {value.text}\n```")
            if len(value.types) > 1:
                parts.append(_all_types(value))
            if len(bound) > 1:
                parts.append("history:")
                lines = [
                    f"- [line {line}]({path.as_uri()}#L{line}) `{one.text}`"
                    for one, where in reversed(bound[-SHOWN_TYPES:])
                    if (line := moved.now.get(where.start.line, -1) + 1)
                ]
                parts.append("\n".join(lines))
        for finding in self.result.findings:
            if finding.location is None or self.path(finding.location) != path:
                continue
            here = covers(self.range(finding.location), position)
            for operand in finding.operands:
                if operand.name == name and (here or self._is_at(operand.location, path, position)):
                    hops = [f"- {hop.text} (line {hop.location.line} of {hop.location.file})" for hop in operand.origin]
                    parts.append("\n".join([f"`{operand.name}: {operand.type}` in {finding.code}", *hops]))
            if here:
                parts.append(f"**{finding.code} {finding.name}**: {finding.message}")
        if not parts:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(dict.fromkeys(parts))))

    def definition(self, path: Path, position: types.Position, text: str) -> list[types.Location]:
        """Where the type of the name at ``position`` came from: as a finding tells it, else the line that bound it."""
        name, moved = word_at(text, position), moved_lines(self.text(path), text)
        at_run = moved.position_then(position)
        if at_run is None:
            return []
        return [
            types.Location(one.uri, now)
            for one in self._origins(path, at_run, name)
            if (now := moved.range_now(one.range) if one.uri == path.as_uri() else one.range) is not None
        ]

    def _origins(self, path: Path, position: types.Position, name: str) -> list[types.Location]:
        for finding in self.result.findings:
            for operand in finding.operands:
                at_operand = self._is_at(operand.location, path, position)
                at_finding = operand.name == name and self._is_at(finding.location, path, position)
                if operand.origin and (at_operand or at_finding):
                    return [self.link(hop.location) for hop in operand.origin]
        bound = self._bindings(path, position, name)
        return [self.link(bound[-1][0].location)] if bound and bound[-1][0].location is not None else []

    def _is_at(self, location: SourceLocation | None, path: Path, position: types.Position) -> bool:
        return location is not None and self.path(location) == path and covers(self.range(location), position)

    def _bindings(self, path: Path, position: types.Position, name: str) -> list[tuple[NamedTypes, types.Range]]:
        """The bindings of ``name`` before the line of ``position``, in order, and the one at ``position`` itself."""
        if not name:
            return []
        found = [(value, at) for value, at in self.values(path) if value.name == name]
        line = position.line
        return [one for one in found if one[1].start.line < line or covers(one[1], position)]


def text_edits(before: str, after: str) -> list[types.TextEdit]:
    """The lines that change, as edits."""
    old, new = lines_of(before), lines_of(after)
    edits = []
    for kind, first, last, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            span = types.Range(types.Position(first, 0), types.Position(last, 0))
            edits.append(types.TextEdit(span, "".join(new[start:end])))
    return edits


def word_at(text: str, position: types.Position) -> str:
    """The name that stands at ``position``, with its dots before it: ``self.weight``."""
    lines = lines_of(text, ends=False)
    if not 0 <= position.line < len(lines):
        return ""
    line = lines[position.line]
    at = len(line.encode()[: utf8_column(line, position.character)].decode("utf-8", "ignore"))
    for found in re.finditer(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*", line):
        if found.start() <= at <= found.end():
            rest = line[at : found.end()]
            return line[found.start() : at + len(re.match(r"\w*", rest)[0])]  # type: ignore[index]
    return ""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 3]}..."


def _all_types(value: NamedTypes) -> str:
    shown = [f"- `{text}` {counted(count, 'time')}" for text, count in value.types[:SHOWN_TYPES]]
    more = len(value.types) - SHOWN_TYPES
    return "\n".join([*shown, *([f"- and {counted(more, 'type')} more"] if more > 0 else [])])
