"""Workflow commands of GitHub Actions, one line each: a finding beside a line of a pull request.

Source: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions, "Setting an error message".
"""

from __future__ import annotations

import os

from .codes import Severity
from .excerpt import character_column, end_character_column
from .finding import Finding, shown_path
from .printable import safe_str
from .result import RunResult
from .text import held_back_text


def to_github(result: RunResult, *, root: str | None = None) -> str:
    """One command per finding, and one for a run that ended early; paths are relative to ``root`` (default: here)."""
    base = os.path.abspath(root if root is not None else os.getcwd())
    told = [
        *(place for one in result.findings for place in one.places),
        *([result.ending] if result.ending is not None else []),
    ]
    held_back = [f"::notice::{_data(held_back_text(result.held_back))}"] if result.held_back else []
    return "\n".join([*(_command(finding, base) for finding in told), *held_back])


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
    kind = {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(finding.severity, "notice")
    return f"::{kind} {given}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")
