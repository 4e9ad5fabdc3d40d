"""What the search box finds: functions, files, problems, texts of compilations, compile ids."""

from __future__ import annotations

from tracewise.find.answers import Answers
from tracewise.report.html import visible
from tracewise.report.links import Links

MAX_BYTES = 5_000_000


def search_index(answers: Answers, links: Links) -> list[list[str]]:
    """Rows of kind, text, detail and page, most useful first; as many as fit into the limit."""
    rows: dict[tuple[str, str, str], str] = {}
    for problem in answers.problems:
        key = ("problem", problem.headline[:200], links.place(problem.site))
        rows.setdefault(key, f"problems.html#{problem.id}")
    for unit in answers.run.compilations:
        href = links.compilation(unit)
        rows.setdefault(("function", f"{unit.function} {unit.id}", links.place(unit.site)), href)
    for unit in answers.run.compilations:
        for record in unit.records:
            if record.has_payload:
                rows.setdefault(("text", record.title, f"{unit.function} {unit.id}"), links.payload(record))
    for cost in answers.costs.by_name:
        rows.setdefault(("phase", cost.name, ""), "timeline.html")
    found, used = [], 0
    for (kind, text, detail), href in rows.items():
        used += len(kind) + len(text) + len(detail) + len(href) + 16
        if used > MAX_BYTES:
            break
        found.append([kind, visible(text), visible(detail), href])
    return found
