"""Where compile time went: by phase, from the time that each span spent outside of the spans inside it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from tracewise.model.entities import Compilation, Run, Span

PHASES = ("dynamo", "AOTAutograd", "inductor", "code generation", "kernels", "waiting", "other")
# The first pattern that fits a span's name says its phase; a span that none fits has the phase of the span around it.
PHASE_OF = (
    ("waiting", re.compile(r"async_compile\.wait|\bwait\b")),
    ("kernels", re.compile(r"^compile_file|^(Py|Cpp|Triton)\w*Cache\.|triton|CachingAutotuner|precompile|autotune")),
    ("code generation", re.compile(r"^code_gen|^Scheduler|Codegen|^GraphLowering\.(compile_to|codegen)")),
    ("inductor", re.compile(r"^inductor|^compile_fx|^fx_codegen|^GraphLowering|_grad_pass|fx_graph_cache")),
    ("AOTAutograd", re.compile(r"^aot_|^create_aot|^min_cut|^autograd_cache|^AOTAutograd|^backward")),
    ("dynamo", re.compile(r"^dynamo|^entire_frame|^compile_attempt|^bytecode|^build_guards|^backend_compile|^gc$")),
)  # fmt: skip


@dataclass(slots=True)
class NameCost:
    """What all spans of one name took together; microseconds."""

    name: str
    count: int = 0
    total_us: float = 0.0
    self_us: float = 0.0
    max_us: float = 0.0
    open: int = 0


@dataclass(slots=True)
class Costs:
    """Compile time of a run."""

    by_phase: dict[str, float]
    by_name: list[NameCost]
    dearest: list[Compilation]

    @property
    def total_us(self) -> float:
        return sum(self.by_phase.values())


def find_costs(run: Run, dearest: int = 10) -> Costs:
    """Time by phase and name, and the dearest compilations."""
    phases = dict.fromkeys(PHASES, 0.0)
    names: dict[str, NameCost] = {}
    known: dict[str, str | None] = {}
    for rank in run.ranks:
        of_span: dict[int, str] = {}
        has_compilations = bool(rank.compilations)
        for span in rank.spans:
            if span.name not in known:
                known[span.name] = phase_of_name(span.name)
            phase = known[span.name] or (of_span.get(id(span.parent), "other") if span.parent else "other")
            of_span[id(span)] = phase
            _count(names, span)
            # What has no compile id runs beside a compilation, which waits for it.
            if not (span.id.is_empty and has_compilations):
                phases[phase] += span.self_us or 0.0
    units = sorted(run.compilations, key=lambda unit: -(unit.duration_us or 0.0))
    return Costs(phases, sorted(names.values(), key=lambda cost: -cost.self_us), units[:dearest])


def phase_of_name(name: str) -> str | None:
    return next((phase for phase, pattern in PHASE_OF if pattern.search(name)), None)


def _count(names: dict[str, NameCost], span: Span) -> None:
    cost = names.get(span.name)
    if cost is None:
        cost = names[span.name] = NameCost(span.name)
    cost.count += 1
    if span.dur_us is None:
        cost.open += 1
        return
    cost.total_us += span.dur_us
    cost.self_us += span.self_us or 0.0
    cost.max_us = max(cost.max_us, span.dur_us)


def time_by_function(run: Run) -> list[tuple[str, str, int, float]]:
    """Function, place, compilations and microseconds, dearest first."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for unit in run.compilations:
        found[unit.function, unit.site.place if unit.site else ""].append(unit.duration_us or 0.0)
    rows = [(function, place, len(times), sum(times)) for (function, place), times in found.items()]
    return sorted(rows, key=lambda row: -row[3])
