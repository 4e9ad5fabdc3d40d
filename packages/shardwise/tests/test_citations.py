"""Every section and law that the code cites is on the page that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .documents import ROOT

SOURCES = sorted(path for folder in ("packages", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
SEMANTICS = (ROOT / "docs/semantics.md").read_text()
SECTIONS = set(re.findall(r"^## (\d+)\.", SEMANTICS, re.MULTILINE))
LAWS = set(re.findall(r"^\*\*Law (\d+\.\d+) ", SEMANTICS, re.MULTILINE))


def unresolved(text: str) -> list[str]:
    """The citations of sections and laws in ``text`` that lead nowhere; a section is cited with its page."""
    found = []
    for match in re.finditer(r"(docs/semantics\.md[,\s]+)?\bsections? (\d[\d, and]*)", text):
        if match[1] is None or not set(re.findall(r"\d+", match[2])) <= SECTIONS:
            found.append(match[0])
    return found + [f"Law {law}" for law in re.findall(r"\bLaw (\d+\.\d+)", text) if law not in LAWS]


def test_every_citation_resolves():
    pages = [path for path in SOURCES if "tracewise" not in path.parts and path != Path(__file__)]
    found = {path.relative_to(ROOT).as_posix(): unresolved(path.read_text("utf-8")) for path in pages}
    assert len(found) > 1000
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "text", ["see section 3", "docs/semantics.md section 99", "docs/semantics.md sections 2 and 77", "by Law 1.99"]
)
def test_a_planted_citation_that_leads_nowhere_is_found(text):
    assert len(unresolved(text)) == 1


def test_citations_that_resolve_are_not_reported():
    assert unresolved("Source: docs/semantics.md sections 2 and 7, Law 2.1.") == []


def test_sections_are_numbered_without_a_gap():
    assert sorted(map(int, SECTIONS)) == list(range(1, len(SECTIONS) + 1))
