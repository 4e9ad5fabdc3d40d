"""The pages of a report: each is a name, a template and the values that the template shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tracewise import __version__
from tracewise.find.answers import Answers
from tracewise.find.caches import comparable_misses, key_differences
from tracewise.find.costs import time_by_function
from tracewise.find.export import expression_tree
from tracewise.find.problems import problem_kinds
from tracewise.find.recompiles import ENTRY
from tracewise.model.entities import Compilation, innermost_user_frame
from tracewise.model.payloads import Payloads
from tracewise.ranks.align import Alignment, align
from tracewise.ranks.parity import find_parity
from tracewise.read.grammar import parse_json
from tracewise.read.health import REASONS
from tracewise.report.frame_tree import frame_tree, unit_label
from tracewise.report.html import clock, duration
from tracewise.report.links import Links
from tracewise.report.ranks_page import ranks_values
from tracewise.report.tables import Cell, Column, DataTable

CACHE_DIFFERENCES = 40
DIFFERENCE_TEXT = 2000


@dataclass
class Context:
    """What every page may show."""

    answers: Answers
    links: Links
    payloads: Payloads
    pages: list[Page] = field(default_factory=list)

    @cached_property
    def alignment(self) -> Alignment:
        """The ranks laid beside each other; reads graphs, once."""
        return align(self.answers.run, self.payloads)

    def unit_cell(self, unit: Compilation) -> Cell:
        number = (unit.id.frame or 0) * 1000.0 + (unit.id.compile or 0)
        return Cell(str(unit.id), self.links.compilation(unit), number)

    def process(self, unit: Compilation) -> str:
        return "" if unit.rank is None else str(unit.rank)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the report; ``values`` are those of its template beside the common ones."""

    name: str
    title: str
    template: str
    values: Callable[[Context], dict[str, Any]]
    is_needed: Callable[[Answers], bool] = lambda answers: True


def overview(context: Context) -> dict[str, Any]:
    answers, links = context.answers, context.links
    total_us = answers.costs.total_us or 1.0
    phases = [(name, us, us / total_us) for name, us in answers.costs.by_phase.items() if us > 0]
    functions = time_by_function(answers.run)[:10]
    return {
        "phases": phases,
        "dearest": [(unit, links.compilation(unit), links.place(unit.site)) for unit in answers.costs.dearest],
        "functions": functions,
        "unfinished": [
            (unit, links.compilation(unit), _last_open(answers, unit))
            for unit in answers.run.compilations
            if unit.status == "unfinished"
        ][:5],
        "version": __version__,
        "alignment": context.alignment if answers.run.is_distributed else None,
    }


def _last_open(answers: Answers, unit: Compilation) -> str:
    """The last phase that began and never ended."""
    rank = next(rank for rank in answers.run.ranks if rank.label == unit.process)
    spans = [span for span in rank.spans if span.id == unit.id and span.dur_us is None]
    return spans[-1].name if spans else ""


def problems(context: Context) -> dict[str, Any]:
    answers = context.answers
    rows = []
    for problem in answers.problems:
        rows.append(
            [
                Cell(problem.severity, kind=problem.severity),
                Cell(problem.title),
                Cell(problem.headline, f"#{problem.id}"),
                Cell(context.links.place(problem.site), title=problem.site.place if problem.site else ""),
                Cell(str(len(problem.occurrences)), sort=len(problem.occurrences)),
                Cell(", ".join(problem.processes[:8]) if answers.run.is_distributed else ""),
                Cell(duration(problem.cost_us) if problem.cost_us else "", sort=problem.cost_us),
            ]
        )
    names = ("severity", "kind", "problem", "your line", "times", "ranks", "cost")
    columns = [Column(name, name in ("times", "cost")) for name in names]
    return {
        "table": DataTable("problem-table", "Problems", columns, rows, filters="kind"),
        "kinds": list(problem_kinds(answers.problems)),
    }


def recompiles(context: Context) -> dict[str, Any]:
    return {"chains": context.answers.chains[:500], "more": max(len(context.answers.chains) - 500, 0)}


def functions(context: Context) -> dict[str, Any]:
    """All compilations as a table, and the tree of who called them."""
    rows = []
    for unit in context.answers.run.compilations:
        site = unit.site
        rows.append(
            [
                Cell(context.process(unit), sort=unit.rank),
                context.unit_cell(unit),
                Cell(unit_label(unit) or "(unnamed)", context.links.compilation(unit)),
                Cell(context.links.place(site), title=site.place if site else ""),
                Cell(unit.status, kind=unit.status),
                Cell(duration(unit.duration_us), sort=unit.duration_us or 0.0),
                Cell(str(len(unit.attempts)), sort=len(unit.attempts)),
                Cell(str(unit.metrics.get("graph_op_count") or ""), sort=_number(unit.metrics.get("graph_op_count"))),
                Cell(_first_line(unit.recompile_reasons)),
            ]
        )
    names = ("rank", "id", "function", "place", "status", "compile time", "attempts", "operations", "because")
    numbers = {"compile time", "attempts", "operations"}
    columns = [Column(name, name in numbers) for name in names]
    table = DataTable("compilation-table", "Compilations", columns, rows, filters="status")
    return {"table": table, "tree": frame_tree(context.answers.run)}


def caches(context: Context) -> dict[str, Any]:
    rows = []
    for unit in context.answers.run.compilations:
        for event in unit.caches:
            href = context.links.payload(event.record) if event.record.has_payload else ""
            rows.append(
                [
                    Cell(context.process(unit), sort=unit.rank),
                    context.unit_cell(unit),
                    Cell(unit.function or "(unnamed)", context.links.compilation(unit)),
                    Cell(event.cache),
                    Cell(event.state, kind=event.state),
                    Cell(event.key[:60] or "details", href),
                    Cell(duration(event.saved_us) if event.saved_us else "", sort=event.saved_us or 0.0),
                    Cell(event.reason),
                ]
            )
    columns = [Column(n, n == "saved") for n in ("rank", "id", "function", "cache", "state", "key", "saved", "reason")]
    pairs = comparable_misses(context.answers.run)[:CACHE_DIFFERENCES]
    differences = [_difference(context, *pair) for pair in pairs]
    return {
        "table": DataTable("cache-table", "Looks into caches", columns, rows, filters="state"),
        "differences": [difference for difference in differences if difference["parts"]],
    }


def _difference(context: Context, unit: Compilation, event: Any, earlier: Compilation, before: Any) -> dict[str, Any]:
    """What differs in the keys of two looks, with long values cut."""
    texts = []
    for record in (before.record, event.record):
        try:
            texts.append(parse_json(context.payloads.read(record))[0])
        except ValueError:
            texts.append(None)
    found = key_differences(*texts)
    return {
        "unit": unit,
        "earlier": earlier,
        "cache": event.cache,
        "parts": [(part.name, part.before[:DIFFERENCE_TEXT], part.after[:DIFFERENCE_TEXT]) for part in found[:10]],
        "more": max(len(found) - 10, 0),
    }


def shapes(context: Context) -> dict[str, Any]:
    rows = []
    for facts in context.answers.symbols:
        symbol, constant = facts.symbol, facts.specialization
        born = innermost_user_frame(symbol.stack)
        guards = [guard.expression for guard in facts.guards if guard.kind == "guard"]
        rows.append(
            [
                context.unit_cell(facts.unit) if not facts.unit.id.is_empty else Cell("[-/-]"),
                Cell(symbol.name),
                Cell(f"became the constant {constant.value}" if constant else "", kind="warning" if constant else ""),
                Cell(
                    symbol.hint if symbol.is_backed else "known only at run time",
                    kind="" if symbol.is_backed else "note",
                ),
                Cell(symbol.range),
                Cell(", ".join(symbol.sources)),
                Cell(context.links.place(born), title=born.place if born else ""),
                Cell("; ".join(dict.fromkeys(guards))),
            ]
        )
    names = ("compilation", "symbol", "constant", "value seen", "range", "sources", "born at", "conditions")
    return {"table": DataTable("symbol-table", "Symbolic sizes", [Column(name) for name in names], rows)}


def timeline(context: Context) -> dict[str, Any]:
    rows = [
        [
            Cell(cost.name),
            Cell(str(cost.count), sort=cost.count),
            Cell(duration(cost.total_us), sort=cost.total_us),
            Cell(duration(cost.self_us), sort=cost.self_us),
            Cell(duration(cost.max_us), sort=cost.max_us),
            Cell(str(cost.open or ""), sort=cost.open),
        ]
        for cost in context.answers.costs.by_name
    ]
    columns = [Column(n, n != "phase") for n in ("phase", "times", "total", "self", "longest", "never ended")]
    return {"table": DataTable("span-table", "Phases", columns, rows)}


def export(context: Context) -> dict[str, Any]:
    answer, run = context.answers.export, context.answers.run
    assert answer is not None, "the page is made only for exports"
    facts = [
        {
            "fact": fact,
            "frame": innermost_user_frame(fact.stack),
            "tree": expression_tree(run.expressions, fact.node_id),
        }
        for fact in run.export_facts
    ]
    programs = [(record, context.links.payload(record)) for record in answer.programs]
    return {"export": answer, "facts": facts, "programs": programs}


def health(context: Context) -> dict[str, Any]:
    run = context.answers.run
    return {"health": run.health, "reasons": REASONS, "files": run.files}


def ranks(context: Context) -> dict[str, Any]:
    run = context.answers.run
    rows = []
    for rank in run.ranks:
        units = list(rank.compilations.values())
        total_us = sum(unit.duration_us or 0.0 for unit in units)
        states = [event.state for unit in units for event in unit.caches]
        rows.append(
            [
                Cell(rank.label, sort=rank.number),
                Cell(", ".join(map(str, rank.pids))),
                Cell(str(len(units)), sort=len(units)),
                Cell(duration(total_us), sort=total_us),
                *(Cell(str(states.count(state)), sort=states.count(state)) for state in ("hit", "miss", "bypass")),
                Cell(clock(min((u.started_us for u in units), default=0), run.offset_us)),
            ]
        )
    names = ("rank", "process", "compilations", "compile time", "hits", "misses", "bypasses", "first compilation")
    columns = [Column(name, name not in ("process", "first compilation")) for name in names]
    parities = find_parity(run, context.payloads)
    values = ranks_values(context.alignment, parities, context.links)
    return {"table": DataTable("rank-table", "Ranks", columns, rows), **values}


PAGES = (
    Page("index.html", "Overview", "overview.html", overview),
    Page("problems.html", "Problems", "problems.html", problems),
    Page("recompiles.html", "Recompilations", "recompiles.html", recompiles),
    Page("frames.html", "Functions", "frames.html", functions),
    Page("caches.html", "Caches", "caches.html", caches),
    Page("shapes.html", "Shapes", "shapes.html", shapes),
    Page("timeline.html", "Timeline", "timeline.html", timeline),
    Page("ranks.html", "Ranks", "ranks.html", ranks, lambda answers: answers.run.is_distributed),
    Page("export.html", "Export", "export.html", export, lambda answers: answers.export is not None),
    Page("health.html", "Log health", "health.html", health),
)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _first_line(reasons: list[str]) -> str:
    return ENTRY.sub("", reasons[0].splitlines()[0])[:300] if reasons and reasons[0].strip() else ""
