"""The pages that show a line of the user's beside the graph nodes and the generated code that it became."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tracewise.find.provenance import Sources, find_provenance, provenance_sources
from tracewise.model.entities import Compilation, Record
from tracewise.model.payloads import Payloads
from tracewise.read.grammar import parse_json
from tracewise.report.links import Links

MAX_TEXT_BYTES = 2_000_000


def provenance_pages(unit: Compilation, payloads: Payloads, links: Links) -> list[tuple[str, dict[str, Any]]]:
    """Name and template values of each page of a compilation; none without a mapping that connects anything."""
    found = []
    for number, sources in enumerate(provenance_sources(unit), 1):
        values = _values(sources, payloads, links)
        if values is not None:
            name = links.compilation(unit).removesuffix(".html") + f"-provenance-{number}.html"
            found.append((name, {"unit": unit, **values}))
    return found


def _values(sources: Sources, payloads: Payloads, links: Links) -> dict[str, Any] | None:
    try:
        mappings, _ = parse_json(payloads.read(sources.mappings))
    except ValueError:
        return None
    pre, post, code = (_text(payloads, record) for record in (sources.pre, sources.post, sources.code))
    provenance = find_provenance(mappings, pre, post, code)
    if not any(family.code and family.post for family in provenance.families):
        return None
    return {
        "columns": [
            ("user", "Your lines", [f"{links.short(place)}  {code_text}" for place, code_text in provenance.user]),
            ("pre", "Graph before passes", pre.split("\n")),
            ("post", "Graph after passes", post.split("\n")),
            ("code", "Generated code", code.split("\n")),
        ],
        "families": [asdict(family) for family in provenance.families],
    }


def _text(payloads: Payloads, record: Record | None) -> str:
    return payloads.text(record, MAX_TEXT_BYTES) if record else ""
