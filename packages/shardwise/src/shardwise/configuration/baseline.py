"""The baseline: a file of findings that are known, so that only what is new fails.

A finding is recognised by its code, its file, the function that it is in and the text of its line, and not by the
line's number: lines may move. Several alike are counted. Paths are relative to the file's folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.excerpt import source_line
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.printing.printable import safe_str

from .whole_file import write_whole

SCHEMA = "shardwise.baseline/1"


@dataclass(frozen=True)
class Known:
    """One kind of known finding."""

    code: str
    file: str
    function: str
    line: str
    count: int = 1

    @property
    def fingerprint(self) -> str:
        """The same for the same mistake, wherever its line has gone."""
        said = "\0".join((self.code, self.file, self.function, self.line))
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]

    def __str__(self) -> str:
        where = f"{self.file}, in {self.function}" if self.function not in ("", "<module>") else self.file
        return f"{self.code} in {where}: {self.line}" if self.file else f"{self.code}: {self.line}"


def known(finding: Finding, folder: Path) -> Known:
    """How a finding is recognised; ``folder`` is that of the baseline."""
    if finding.location is None:
        return Known(finding.code, "", "", safe_str(finding.message))
    file = finding.location.file
    path = file if file.startswith("<") else os.path.relpath(os.path.realpath(file), os.path.realpath(folder))
    line = " ".join((source_line(finding.location) or "").split())
    return Known(finding.code, path.replace(os.sep, "/"), finding.location.function, line)


def fingerprint(finding: Finding, folder: Path) -> str:
    """That of ``known``, for forms that have a place for it."""
    return known(finding, folder).fingerprint


def read_baseline(path: Path) -> dict[str, Known]:
    """What ``write_baseline`` wrote, by fingerprint. Errors: SW905."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        said = f"cannot read the baseline {path}: {(error.strerror or str(error)).lower()}"
        raise SpmdValueError(f"{said}; --write-baseline writes one", code="SW905") from None
    except (ValueError, RecursionError) as error:
        raise SpmdValueError(f"the baseline {path} is not JSON: {error}", code="SW905") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SpmdValueError(f"{path} is no baseline: its schema is not {SCHEMA!r}", code="SW905")
    try:
        entries = [
            Known(entry["code"], entry["file"], entry["function"], entry["line"], int(entry["count"]))
            for entry in data["findings"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise SpmdValueError(f"the baseline {path} is damaged: {error!r}", code="SW905") from None
    return {entry.fingerprint: entry for entry in entries}


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Write all of them as known; how many there were. Errors: SW905."""
    counts: Counter[Known] = Counter(known(finding, path.parent) for finding in findings)
    entries = [
        {
            "code": one.code,
            "file": one.file,
            "function": one.function,
            "line": one.line,
            "count": count,
        }
        for one, count in sorted(counts.items(), key=lambda item: (item[0].file, item[0].code, item[0].line))
    ]
    text = json.dumps({"schema": SCHEMA, "findings": entries}, indent=2, ensure_ascii=False)
    try:
        write_whole(path, f"{text}\n".encode())
    except OSError as error:
        raise SpmdValueError(f"cannot write {path}: {(error.strerror or str(error)).lower()}", code="SW905") from None
    return counts.total()
