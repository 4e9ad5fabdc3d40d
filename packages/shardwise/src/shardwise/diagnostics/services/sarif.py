"""A run as SARIF 2.1.0 for code-scanning services: one run with one result per finding.

Source: the OASIS standard, https://docs.oasis-open.org/sarif/sarif/v2.1.0/. Paths are relative to the root that was
given, columns count characters from 1, and how the run ended is an invocation notification and not a result.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import quote

from ..codes import CODES, Severity
from ..excerpt import character_column, end_character_column, source_line
from ..explain import page
from ..finding import Finding, shown_path
from ..fix import Fix
from ..printing.printable import safe_str
from ..result import HeldBack, HeldBackBy, RunResult
from ..source_location import Operand, SourceLocation, lines_of

FINGERPRINT = "shardwiseFinding/v1"
SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


Edits = Callable[[Fix], Iterable[tuple[str, str, str]]]
"""The files that a fix changes: path, text before and text after. Nothing where it cannot be made."""


def to_sarif(
    result: RunResult, *, root: str | None = None, version: str = "", edits: Edits = lambda fix: (), docs: str = ""
) -> str:
    """The run as a SARIF log; paths are relative to ``root`` (default: here).

    ``edits``  what fixes change; who renders the log may know how files say our names, this module does not.
    ``docs``   the address of these docs; without one a rule has a name for it, and its page in ``help``.
    """
    base = os.path.abspath(root if root is not None else os.getcwd())
    found = [place for one in result.findings for place in one.places]
    told = [*((finding, None) for finding in found), *((one.finding, one) for one in result.held_back)]
    used = [code for code in CODES if any(finding.code == code for finding, _ in told)]
    run = {
        "tool": {"driver": {"name": "shardwise", **_version(version), "rules": [_rule(code, docs) for code in used]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": result.ending is None,
                "exitCode": int(result.exit_code),
                "toolExecutionNotifications": [] if result.ending is None else [_notification(result.ending, base)],
            }
        ],
        "results": [
            _result(finding, used.index(finding.code), base)
            | {"partialFingerprints": {FINGERPRINT: fingerprint}}
            | _fixes(finding, base, edits)
            | _suppressed(held)
            for (finding, held), fingerprint in zip(told, _fingerprints([one for one, _ in told], base), strict=True)
        ],
    }
    return json.dumps({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _version(version: str) -> dict[str, str]:
    return {"version": version} if version else {}


def _rule(code: str, docs: str) -> dict[str, object]:
    entry = CODES[code]
    return {
        "id": code,
        "name": entry.name,
        "shortDescription": {"text": entry.summary},
        "fullDescription": {"text": page(code).sentence},
        "helpUri": f"{docs}/codes/{code}/" if docs else f"urn:shardwise:explain:{code}",
        "help": {"text": f"shardwise explain {code}", "markdown": page(code).text},
        "defaultConfiguration": {"level": _level(entry.severity)},
    }


def _level(severity: Severity) -> str:
    return severity.value


def _suppressed(held: HeldBack | None) -> dict[str, object]:
    """Whoever takes the log keeps the finding closed."""
    if held is None:
        return {}
    kind = "inSource" if held.by is HeldBackBy.COMMENT else "external"
    return {"suppressions": [{"kind": kind, "justification": safe_str(held.reason) or held.by.value}]}


def _result(finding: Finding, rule_index: int, base: str) -> dict[str, object]:
    lines = [finding.message, *finding.facts, *(f"help: {line}" for line in finding.help)]
    text = "\n".join(map(safe_str, lines))
    origins = [_related(operand, base) for operand in finding.operands]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _level(finding.severity),
        "message": {"text": text},
        "locations": [] if finding.location is None else [{"physicalLocation": _physical(finding.location, base)}],
        "relatedLocations": [location for locations in origins for location in locations],
        "occurrenceCount": finding.count,
    }


def _fingerprints(findings: Sequence[Finding], base: str) -> list[str]:
    """What tells a finding from others in the next run too, where lines have moved: the text of its line.

    The same on several lines alike is told apart by which of them it is.
    """
    seen: Counter[str] = Counter()
    fingerprints = []
    for finding in findings:
        location = finding.location
        where = ["", ""]
        if location is not None:
            where = [shown_path(location.file, base), " ".join((source_line(location) or "").split())]
        text = "\0".join([finding.code, finding.op, finding.axis, *where])
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
        seen[digest] += 1
        fingerprints.append(f"{digest}:{seen[digest]}")
    return fingerprints


def _fixes(finding: Finding, base: str, edits: Edits) -> dict[str, object]:
    fixes = []
    for fix in finding.fixes:
        if fix.choice:
            continue  # services make a fix at one press of a button
        changes = [
            {"artifactLocation": {"uri": _uri(file, base)}, "replacements": _replacements(before, after)}
            for file, before, after in edits(fix)
        ]
        if changes:
            fixes.append({"description": {"text": safe_str(fix.help)}, "artifactChanges": changes})
    return {"fixes": fixes} if fixes else {}


def _replacements(before: str, after: str) -> list[dict[str, object]]:
    """Whole lines: from the start of the first that changes to the start of the first that does not."""
    old, new = lines_of(before), lines_of(after)
    return [
        {
            "deletedRegion": {"startLine": i1 + 1, "startColumn": 1, "endLine": i2 + 1, "endColumn": 1},
            "insertedContent": {"text": "".join(new[j1:j2])},
        }
        for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


def _uri(file: str, base: str) -> str:
    return quote(shown_path(file, base).replace(os.sep, "/"))


def _notification(ending: Finding, base: str) -> dict[str, object]:
    return {
        "level": "error",
        "message": {"text": safe_str(ending.headline)},
        "locations": [] if ending.location is None else [{"physicalLocation": _physical(ending.location, base)}],
    }


def _related(operand: Operand, base: str) -> list[dict[str, object]]:
    typed = f"{safe_str(operand.name)}: {safe_str(operand.type)}"
    related = [] if operand.location is None else [(typed, operand.location)]
    related += [(f"{typed}, {safe_str(hop.text)}", hop.location) for hop in operand.origin]
    return [{"message": {"text": text}, "physicalLocation": _physical(location, base)} for text, location in related]


def _physical(location: SourceLocation, base: str) -> dict[str, object]:
    region = {
        "startLine": location.line,
        "startColumn": character_column(location),
        "endLine": location.end_line,
        "endColumn": end_character_column(location),
    }
    return {
        "artifactLocation": {"uri": _uri(location.file, base)},
        "region": {key: value for key, value in region.items() if value is not None},
    }
