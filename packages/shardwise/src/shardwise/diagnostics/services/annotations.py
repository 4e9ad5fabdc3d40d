"""Workflow commands of GitHub Actions, one line each: a finding beside a line of a pull request.

Source: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions, "Setting an error message".
"""

from __future__ import annotations

import os

from ..codes import Severity
from ..excerpt import character_column, end_character_column
from ..finding import Finding, location_text, shown_path
from ..printing.limits import counted
from ..printing.printable import safe_str
from ..result import RunResult
from ..text import held_back_text

MOST_OF_A_KIND = 10
"""Annotations of one kind that GitHub shows of one step; what is beyond is dropped without a word."""
LONGEST = 4000
"""Characters of one annotation."""


def to_github(result: RunResult, *, root: str | None = None) -> str:
    """One command per finding, and one for a run that ended early; paths are relative to ``root`` (default: here).

    Of more than GitHub shows, the last annotation says how many there are, and they stand in the log in a group.
    """
    base = os.path.abspath(root if root is not None else os.getcwd())
    by_kind: dict[str, list[Finding]] = {}
    # How the run ended comes first: it must not be among those that are dropped.
    told = [place for one in result.findings for place in one.places]
    for finding in (*([result.ending] if result.ending is not None else []), *told):
        by_kind.setdefault(_kind(finding), []).append(finding)
    lines, more = [], []
    for kind, findings in by_kind.items():
        room = len(findings) if len(findings) <= MOST_OF_A_KIND else MOST_OF_A_KIND - 1
        lines += [_command(finding, base) for finding in findings[:room]]
        if findings[room:]:
            more += findings[room:]
            count = len(findings) - room
            said = f"and {counted(count, 'more finding')}: the log of this step lists {'it' if count == 1 else 'them'}"
            lines.append(f"::{kind} title=shardwise::{_data(said)}")
    if result.held_back:
        lines.append(f"::notice::{_data(held_back_text(result.held_back))}")
    if more:
        lines += [
            f"::group::{counted(len(more), 'more finding')}",
            *(_plain(one, base) for one in more),
            "::endgroup::",
        ]
    return "\n".join(lines)


def _kind(finding: Finding) -> str:
    return {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(finding.severity, "notice")


def _plain(finding: Finding, base: str) -> str:
    """A line of the log; a message that starts like a command is none."""
    where = "" if finding.location is None else f"{location_text(finding.location, base)}: "
    return f"  {where}{safe_str(finding.headline)}".replace("::", ": :")


def _command(finding: Finding, base: str) -> str:
    properties: dict[str, object] = {}
    location = finding.location
    if location is not None:
        properties["file"] = shown_path(location.file, base)
        properties["line"] = location.line
        properties["endLine"] = location.end_line
        if location.end_line in (None, location.line):
            properties["col"] = character_column(location)
            properties["endColumn"] = end_character_column(location)
    properties["title"] = f"{finding.code} {finding.name}"
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value is not None)
    times = [f"{finding.count} times at this place"] if finding.count > 1 else []
    lines = [finding.message, *finding.facts, *times, *(f"help: {line}" for line in finding.help)]
    text = "\n".join(safe_str(part) for line in lines for part in str(line).splitlines())
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 3]}..."
    return f"::{_kind(finding)} {given}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")
