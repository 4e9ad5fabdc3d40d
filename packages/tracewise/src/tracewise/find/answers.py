"""All answers of one run: what the report, the terminal and the JSON show alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracewise.find.caches import CacheSummary, summarise_caches
from tracewise.find.costs import Costs, find_costs
from tracewise.find.export import ExportAnswer, find_export
from tracewise.find.problems import Problem, find_problems
from tracewise.find.recompiles import Chain, find_chains
from tracewise.find.shapes import SymbolFacts, find_symbols
from tracewise.model.entities import Run


@dataclass
class Answers:
    """What tracewise says of a run."""

    run: Run
    problems: list[Problem]
    chains: list[Chain]
    caches: list[CacheSummary]
    costs: Costs
    symbols: list[SymbolFacts]
    export: ExportAnswer | None

    @property
    def is_clean(self) -> bool:
        """No problem that is more than a note, and everything was understood."""
        return self.run.health.is_clean and all(problem.severity == "note" for problem in self.problems)

    @property
    def functions(self) -> int:
        return len({(unit.function, unit.site and unit.site.place) for unit in self.run.compilations})

    @property
    def recompilations(self) -> int:
        return sum(len(chain.links) for chain in self.chains)

    @property
    def unfinished(self) -> int:
        return sum(unit.status == "unfinished" for unit in self.run.compilations)

    @property
    def compile_us(self) -> float:
        return sum(unit.duration_us or 0.0 for unit in self.run.compilations)

    def as_json(self) -> dict[str, Any]:
        """The numbers and the lists, for ``data/run.json`` and ``--json``."""
        run = self.run
        return {
            "format": 1,
            "folder": run.folder,
            "torch_version": run.torch_version,
            "torch_commit": run.torch_commit,
            "started_us": run.started_us,
            "ended_us": run.ended_us,
            "ranks": [rank.number for rank in run.ranks],
            "files": [{"name": file.name, "bytes": file.size, "records": file.records} for file in run.files],
            "clean": self.is_clean,
            "functions": self.functions,
            "compilations": len(run.compilations),
            "compile_us": self.compile_us,
            "recompilations": self.recompilations,
            "unfinished": self.unfinished,
            "phases_us": self.costs.by_phase,
            "problems": [problem_json(problem) for problem in self.problems],
            "caches": [
                {"cache": summary.cache, **summary.states, "saved_us": summary.saved_us} for summary in self.caches
            ],
            "export": None if self.export is None else {"verdict": self.export.verdict, "reasons": self.export.reasons},
            "health": run.health.as_json(),
        }


def problem_json(problem: Problem) -> dict[str, Any]:
    """One problem for machines."""
    return {
        "id": problem.id,
        "kind": problem.kind,
        "severity": problem.severity,
        "headline": problem.headline,
        "explanation": problem.explanation,
        "hints": problem.hints,
        "url": problem.url,
        "site": problem.site._asdict() if problem.site else None,
        "cost_us": problem.cost_us,
        "occurrences": [{"process": o.process, "id": str(o.id)} for o in problem.occurrences],
    }


def find_answers(run: Run) -> Answers:
    """Asks everything."""
    problems = find_problems(run)
    return Answers(
        run,
        problems,
        find_chains(run),
        summarise_caches(run),
        find_costs(run),
        find_symbols(run),
        find_export(run, problems),
    )
