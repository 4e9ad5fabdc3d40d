"""From a line of the user's to graph nodes to generated code and back, where ``INDUCTOR_PROVENANCE=1`` wrote how.

A family is what belongs together: the lines of each column that one node of the post-grad graph connects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracewise.find.graph_text import GraphLine, graph_nodes, kernel_lines, lines_with
from tracewise.model.entities import Compilation, Record

MAPPINGS = "inductor_provenance_tracking_node_mappings"
PRE_GRAD = ("after_pre_grad_graph", "before_pre_grad_graph", "dynamo_output_graph")
POST_GRAD = ("inductor_post_grad_graph", "after_post_grad_graph")


@dataclass(slots=True)
class Sources:
    """The records of one graph (forward or backward) that a mapping connects."""

    mappings: Record
    pre: Record | None
    post: Record | None
    code: Record | None


@dataclass(slots=True)
class Family:
    """Line numbers, from 1, in each column."""

    user: list[int] = field(default_factory=list)
    pre: list[int] = field(default_factory=list)
    post: list[int] = field(default_factory=list)
    code: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Provenance:
    """The user's lines (place and code) and the families of lines."""

    user: list[tuple[str, str]]
    families: list[Family]


def provenance_sources(unit: Compilation) -> list[Sources]:
    """Each mapping of a compilation with the texts nearest before it: forward and backward share one compile id."""
    found = []
    records = unit.records
    for number, record in enumerate(records):
        if record.title == MAPPINGS and not record.is_damaged:
            before = records[:number][::-1]
            found.append(
                Sources(
                    record,
                    _first(before, PRE_GRAD),
                    _first(before, POST_GRAD),
                    _first(before, ("inductor_output_code",)),
                )
            )
    return found


def _first(records: list[Record], titles: tuple[str, ...]) -> Record | None:
    for title in titles:
        for record in records:
            if record.title == title and record.has_payload:
                return record
    return None


def find_provenance(mappings: Any, pre: str, post: str, code: str) -> Provenance:
    """The families that a mapping and three texts make. Names that the texts lack are left out."""
    pre_nodes, post_nodes, kernels = graph_nodes(pre), graph_nodes(post), kernel_lines(code)
    to_pre, to_code = _lists(mappings, "postToPre"), _lists(mappings, "postToCppCode")
    user: dict[tuple[str, int], int] = {}
    texts: list[tuple[str, str]] = []
    families = []
    for name, line in post_nodes.items():
        family = Family(post=[line.number])
        befores = [pre_nodes[n] for n in to_pre.get(name, []) if n in pre_nodes]
        family.pre = [before.number for before in befores]
        for kernel in to_code.get(name, []):
            family.code += kernels.get(kernel) or lines_with(code, kernel.rpartition(":")[0] or kernel)
        for source in _user_lines([*befores, line]):
            key = (source[0], source[1])
            if key not in user:
                user[key] = len(texts) + 1
                texts.append((f"{source[0]}:{source[1]}", source[2]))
            if user[key] not in family.user:
                family.user.append(user[key])
        if family.pre or family.code or family.user:
            families.append(family)
    return Provenance(texts, families)


def _user_lines(lines: list[GraphLine]) -> list[tuple[str, int, str]]:
    return [line.source for line in lines if line.source is not None]


def _lists(mappings: Any, key: str) -> dict[str, list[str]]:
    value = mappings.get(key) if isinstance(mappings, dict) else None
    if not isinstance(value, dict):
        return {}
    return {
        name: [item for item in items if isinstance(item, str)]
        for name, items in value.items()
        if isinstance(items, list)
    }
