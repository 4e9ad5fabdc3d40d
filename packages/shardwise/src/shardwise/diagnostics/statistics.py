"""A run in numbers: how many findings of each code, for people, and as a line of JSON to be appended to a file."""

from __future__ import annotations

import datetime
import json
from collections import Counter

from .codes import CODES
from .printing.limits import counted
from .printing.printable import safe_str
from .result import RunResult

SCHEMA = "shardwise.statistics/1"


def counts_by_code(result: RunResult) -> dict[str, int]:
    """The number of findings of each code, the most frequent first."""
    counts = Counter(place.code for finding in result.findings for place in finding.places)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def counts_text(result: RunResult) -> str:
    """A line for each code, and how the run ended."""
    counts = counts_by_code(result)
    width = len(str(max(counts.values(), default=0)))
    severities = {place.code: place.severity.value for finding in result.findings for place in finding.places}
    lines = [f"{count:>{width}}  {code}  {severities[code]:<7}  {CODES[code].name}" for code, count in counts.items()]
    ended = result.verdict if result.ending is None else result.ending.headline
    held_back = f", {len(result.held_back)} held back" if result.held_back else ""
    checked = counted(result.checked_ops, "operation")
    return "\n".join([*lines, f"{ended}; {counted(len(result.findings), 'finding')}{held_back}, {checked} checked"])


def counts_json(result: RunResult) -> str:
    """The same on one line, with the time of day in UTC."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return json.dumps(
        {
            "schema": SCHEMA,
            "time": now,
            "script": safe_str(result.script),
            "mesh": result.mesh,
            "verdict": result.verdict,
            "exit_code": int(result.exit_code),
            "errors": len(result.errors),
            "warnings": len(result.warnings),
            "notes": len(result.notes),
            "held_back": len(result.held_back),
            "checked_ops": result.checked_ops,
            "codes": counts_by_code(result),
        }
    )


def badge_json(result: RunResult) -> str:
    """The verdict as an endpoint of shields.io has it: https://shields.io/badges/endpoint-badge."""
    message = counted(len(result.errors), "error") if result.verdict == "findings" else result.verdict
    if result.held_back:
        message += f", {len(result.held_back)} held back"
    color = {"clean": "brightgreen", "findings": "red"}.get(result.verdict, "lightgrey")
    return json.dumps({"schemaVersion": 1, "label": "shardwise", "message": message, "color": color})


COUNTS = {"text": counts_text, "json": counts_json, "badge": badge_json}
"""By form, what ``--statistics`` prints."""
