"""A run as JUnit XML, the form of results that CI services show: a test case for each finding, and one for the run.

There is no standard; this keeps to what Jenkins and GitLab read: ``testsuites/testsuite/testcase`` with ``failure`` or
``error`` inside. An error of the program under check is a failure, a run without a verdict is an error, and a warning
or note passes, with its text as output.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from ..codes import Severity
from ..finding import Finding, absolute_root, render, shown_path
from ..printing.limits import EVERYTHING
from ..printing.printable import safe_str
from ..result import HeldBack, RunResult


def to_junit(result: RunResult, *, root: str | None = None) -> str:
    """The run as a document; paths are relative to ``root`` (default: here)."""
    base = absolute_root(root)
    suite = ET.Element("testsuite", name="shardwise")
    places = [place for one in result.findings for place in one.places]
    for finding in places:
        case = _case(suite, finding, base)
        if finding.severity is Severity.ERROR:
            _said(case, "failure", finding, base)
        else:
            ET.SubElement(case, "system-out").text = _text(finding, base)
    for held in result.held_back:
        _held_back(suite, held, base)
    run = ET.SubElement(suite, "testcase", classname="shardwise", name=f"the run of {safe_str(result.script) or 'it'}")
    ending = result.ending
    if ending is not None:
        _said(run, "error", ending, base)
    elif result.inconclusive:
        unjudged = safe_str("; ".join(result.coverage.open_questions))
        said = f"not judged: {unjudged}" if result.coverage.unjudged else unjudged
        ET.SubElement(run, "error", message=said, type="inconclusive")
    counts = {
        "tests": len(suite),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(result.held_back),
    }
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", f"{result.duration_s:.3f}")
    run.set("time", f"{result.duration_s:.3f}")
    suites = ET.Element("testsuites", {**{name: str(count) for name, count in counts.items()}, "name": "shardwise"})
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode")


def _case(suite: ET.Element, finding: Finding, base: str) -> ET.Element:
    location = finding.location
    file = "" if location is None else shown_path(location.file, base)
    at = "" if location is None else f" ({file}:{location.line})"
    name = f"{finding.code} {finding.name}{at}"
    given = {"classname": file.removesuffix(".py").replace("/", ".") or "shardwise", "name": name}
    if location is not None:
        given |= {"file": file, "line": str(location.line)}
    return ET.SubElement(suite, "testcase", given)


def _said(case: ET.Element, kind: str, finding: Finding, base: str) -> None:
    said = ET.SubElement(case, kind, message=safe_str(finding.message), type=f"{finding.code} {finding.name}")
    said.text = _text(finding, base)


def _held_back(suite: ET.Element, held: HeldBack, base: str) -> None:
    case = _case(suite, held.finding, base)
    ET.SubElement(case, "skipped", message=f"{held.by.value}: {safe_str(held.reason)}".removesuffix(": "))


def _text(finding: Finding, base: str) -> str:
    return render(finding, root=base, limits=EVERYTHING)
