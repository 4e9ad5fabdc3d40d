"""What a whole run of pytest found: ``--spmd-report FILE`` as JSON, and a section in the terminal."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardwise.configuration.whole_file import write_whole
from shardwise.diagnostics.codes import CODES
from shardwise.diagnostics.printing.limits import counted

SCHEMA = "shardwise.tests/1"


class SessionReport:
    """A plugin that gathers the reports of checked tests, from workers too, and writes them at the end."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._written = f"written to {file}"
        self._tests: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what was found in a checked test."""
        found = getattr(report, "shardwise", None)
        if found is not None:
            self._tests.append({"test": report.nodeid, "outcome": report.outcome, "result": found})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file. A file that cannot be written is said in the summary."""
        tests = sorted(self._tests, key=lambda one: str(one["test"]))
        document = {
            "schema": SCHEMA,
            "tests": tests,
            "failed": sum(test["outcome"] == "failed" for test in tests),
            "codes": dict(sorted(self._codes().items())),
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode())
        except OSError as error:
            self._written = f"cannot write {self._file}: {(error.strerror or str(error)).lower()}"
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section: how many tests, which codes, and where the file is."""
        terminalreporter.section("shardwise")
        operations = sum(test["result"]["checked_ops"] for test in self._tests)
        checked = f"{counted(len(self._tests), 'test')} on meshes, {counted(operations, 'operation')} checked"
        terminalreporter.line(checked)
        for code, count in self._codes().most_common():
            terminalreporter.line(f"  {code} {CODES[code].name}: {counted(count, 'finding')}")
        terminalreporter.line(self._written)

    def _codes(self) -> Counter[str]:
        return Counter(finding["code"] for test in self._tests for finding in test["result"]["findings"])
