"""All that can be said of the ranks of a job, from whatever files there are: what page, terminal and JSON show."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewise.model.collectives import Recording, add_dump, add_world
from tracewise.model.payloads import Payloads
from tracewise.model.profile import Profile, add_trace
from tracewise.model.runs import find_runs, load_run
from tracewise.ranks.align import Alignment, align
from tracewise.ranks.collectives import analyse
from tracewise.ranks.plan import PlanAnswer, follow
from tracewise.ranks.verdicts import CollectiveAnswer
from tracewise.read.archive import InputError
from tracewise.read.flight import FlightDump, read_flight
from tracewise.read.health import Health
from tracewise.read.kineto import ProfilerTrace
from tracewise.read.plan import read_plan
from tracewise.read.source import Sources

TOP_OPERATORS = 10


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of input and what it says."""

    title: str
    headline: str
    details: list[str]
    notes: list[str]


@dataclass
class RanksAnswer:
    """What flight recorder, profiler, trace logs and plan say; None for what was not given."""

    collectives: CollectiveAnswer | None = None
    profiled: CollectiveAnswer | None = None
    profiles: list[Profile] = field(default_factory=list)
    alignment: Alignment | None = None
    plan: PlanAnswer | None = None
    health: Health = field(default_factory=Health)

    @property
    def agrees(self) -> bool | None:
        """None if it cannot be told: too few files, or some of them not understood."""
        recorded = [answer for answer in (self.collectives, self.profiled) if answer is not None]
        if any(answer.verdicts for answer in recorded) or (self.plan is not None and self.plan.deviations):
            return False
        if self.alignment is not None and self.alignment.diverges:
            return False
        whole = all(answer.is_whole for answer in recorded)
        if self.alignment is not None:
            whole = whole and self.alignment.is_whole
        if self.plan is not None:
            whole = whole and self.plan.compared > 0
        return True if whole and self.health.is_clean else None

    @property
    def parts(self) -> list[Part]:
        """What is said, the plan first: it names lines of code."""
        parts = []
        if self.plan is not None:
            details = [d.text for d in self.plan.deviations[1:]]
            details += dict.fromkeys(f"{f.code} at {f.file}:{f.line}: {f.message}" for f in self.plan.findings)
            parts.append(Part("plan", self.plan.headline, details, self.plan.notes))
        for title, answer in (("collectives", self.collectives), ("profiler", self.profiled)):
            if answer is not None:
                details = [verdict.text for verdict in answer.verdicts[1:]]
                parts.append(Part(title, answer.headline, details, answer.notes + _damage(answer.recording.health)))
        if self.alignment is not None:
            details = [item.text for item in self.alignment.differences[1:]]
            parts.append(Part("compilations", self.alignment.headline, details, _damage(self.alignment.health)))
        if not self.health.is_clean:
            parts.append(Part("input", "not all of it could be read", [], _damage(self.health)))
        return parts

    def as_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "agree": self.agrees,
            "plan": self.plan.as_json() if self.plan else None,
            "collectives": self.collectives.as_json() if self.collectives else None,
            "profiler": self.profiled.as_json() if self.profiled else None,
            "steps": [
                {"rank": s.rank, "name": s.name, "start_ns": s.start_ns, "dur_ns": s.dur_ns}
                for profile in self.profiles
                for s in profile.steps
            ],
            "operators": {
                str(profile.rank): [
                    {"name": o.name, "count": o.count, "self_us": o.self_us} for o in profile.operators[:TOP_OPERATORS]
                ]
                for profile in self.profiles
            },
            "compilations": self.alignment.as_json() if self.alignment else None,
            "health": self.health.as_json(),
        }


def ask(sources: Sources, plans: list[Path], run_number: int | None = None) -> RanksAnswer:
    """Reads the sources and compares. InputError if none of them tells anything about ranks."""
    answer = RanksAnswer(health=sources.health)
    dumps = [read_flight(source) for source in sources.of_kind("flight")]
    traces = [ProfilerTrace(source) for source in sources.of_kind("profiler")]
    logs = sources.of_kind("trace")
    plans = [*plans, *(source.path for source in sources.of_kind("plan"))]
    if not dumps and not traces and not logs:
        kinds = ", ".join(sorted({file.kind for file in sources.files})) or "nothing"
        raise InputError(
            f"no flight-recorder dump, profiler trace or trace log among the files given (found: {kinds}); "
            "a dump a rank is written on a timeout if TORCH_FR_BUFFER_SIZE is set"
        )
    if dumps:
        recording = record_dumps(dumps)
        answer.collectives = analyse(recording)
    if traces:
        profiled = Recording("profiler")
        answer.profiles = [add_trace(profiled, trace) for trace in traces]
        answer.profiled = analyse(profiled)
    if logs:
        found = find_runs(sources)
        number = len(found) - 1 if run_number is None else run_number
        if not 0 <= number < len(found):
            raise InputError(f"--run {run_number}: there are runs 0 to {len(found) - 1}, 0 is the oldest")
        run = load_run(found[number], number)
        if run.is_distributed or not (dumps or traces):
            with Payloads(run) as payloads:
                answer.alignment = align(run, payloads)
    if plans:
        recorded = answer.collectives or answer.profiled
        if recorded is None:
            raise InputError("a plan is laid against what happened: give flight-recorder dumps or profiler traces too")
        answer.plan = follow(recorded.recording, read_plan(plans))
    return answer


def record_dumps(dumps: list[FlightDump]) -> Recording:
    """The dumps of all ranks. Of two dumps of a rank, the one with stacks counts."""
    recording = Recording("flight")
    best: dict[int, FlightDump] = {}
    for dump in dumps:
        known = best.get(dump.rank)
        if known is None or (dump.has_stacks, len(dump.entries)) > (known.has_stacks, len(known.entries)):
            best[dump.rank] = dump
    for rank in sorted(best):
        add_dump(recording, best[rank])
    add_world(recording)
    return recording


def _damage(health: Health) -> list[str]:
    return [f"not understood: {name.replace('_', ' ')}, {count} times" for name, count in sorted(health.damage.items())]
