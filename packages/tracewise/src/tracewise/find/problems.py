"""What went wrong or made the run slower, grouped so that one cause is one problem, with its cost.

Two occurrences are one problem if headline (without numbers and addresses) and user line are equal; the id is made
from both, so it is the same in another run and on another rank.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracewise.find.break_text import BreakInfo, parse_break, user_place
from tracewise.model.entities import BreakText, Compilation, Frame, Record, Run, innermost_user_frame
from tracewise.model.ids import CompileId

SEVERITIES = ("error", "warning", "note")
KINDS = {
    "failure": ("error", "compilation failed"),
    "unfinished": ("error", "compilation never finished"),
    "recompile-limit": ("error", "recompile limit hit"),
    "missing-fake-kernel": ("error", "operator without fake kernel"),
    "mismatched-fake-kernel": ("error", "fake kernel differs from the real one"),
    "data-dependent": ("error", "decision that depends on data"),
    "export-guard": ("warning", "condition that the export holds under"),
    "graph-break": ("warning", "graph break"),
    "restart": ("warning", "analysis begun anew"),
    "specialization": ("warning", "dimension became constant"),
    "cache-bypass": ("note", "cache bypassed"),
    "empty-graph": ("note", "nothing to compile"),
    "cudagraph-skip": ("note", "CUDA graphs not used"),
}
EXPORT_KINDS = {
    "missing_fake_kernel": "missing-fake-kernel",
    "mismatched_fake_kernel": "mismatched-fake-kernel",
    "propagate_real_tensors": "data-dependent",
    "propagate_real_tensors_provenance": "data-dependent",
    "guard_on_data_dependent_error": "data-dependent",
}
CHECKED_AT_RUN_TIME = ("runtime_assert", "runtime_assert [guard suppressed]", "eval [guard suppressed]")
EXPORT_GUARD_HINT = "If that is meant, say it in dynamic_shapes or with torch._check; else change the line that asks."
LIMIT = re.compile(r"recompile_limit|cache_size_limit|RecompileLimitExceeded")
RESUME = re.compile(r"^torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)$")
VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(slots=True)
class Occurrence:
    """One compilation that the problem concerns; ``process`` is ``Rank.label``."""

    process: str
    id: CompileId
    record: Record | None = None


@dataclass(slots=True)
class Problem:
    """One cause. ``cost_us`` is the compile time that it wasted, as far as the log tells."""

    id: str
    kind: str
    headline: str
    explanation: str
    hints: list[str]
    url: str
    site: Frame | None
    text: str
    cost_us: float = 0.0
    occurrences: list[Occurrence] = field(default_factory=list)

    @property
    def severity(self) -> str:
        return KINDS[self.kind][0]

    @property
    def title(self) -> str:
        """The kind in words."""
        return KINDS[self.kind][1]

    @property
    def processes(self) -> list[str]:
        return sorted({occurrence.process for occurrence in self.occurrences})


def problem_id(kind: str, headline: str, site: Frame | None) -> str:
    """``TW-<kind>-<8 hex>``: equal for the same headline at the same line, whatever the numbers in it."""
    place = f"{site.file}:{site.line}" if site else ""
    text = f"{VARIABLE.sub('N', headline)}\n{place}".encode("utf-8", "backslashreplace")
    return f"TW-{kind}-{hashlib.sha1(text, usedforsecurity=False).hexdigest()[:8]}"


class ProblemBook:
    """Problems by id while they are found."""

    def __init__(self) -> None:
        self.problems: dict[str, Problem] = {}

    def add(
        self,
        kind: str,
        info: BreakInfo,
        site: Frame | None,
        unit: Compilation,
        *,
        text: str = "",
        cost_us: float = 0.0,
        record: Record | None = None,
    ) -> Problem:
        key = problem_id(kind, info.headline, site)
        problem = self.problems.get(key)
        if problem is None:
            problem = Problem(key, kind, info.headline, info.explanation, info.hints, info.url, site, text)
            self.problems[key] = problem
        problem.occurrences.append(Occurrence(unit.process, unit.id, record))
        problem.cost_us += cost_us
        return problem


def find_problems(run: Run) -> list[Problem]:
    """All problems of a run, the most severe and most costly first."""
    book = ProblemBook()
    resumed = _resumed_us(run)
    for unit in run.compilations:
        _of_compilation(book, unit, resumed)
    by_id = {(unit.process, unit.id): unit for unit in run.compilations}
    outside = next((rank.outside for rank in run.ranks), Compilation(CompileId(), None, 0))
    for fact in run.export_facts:
        unit = by_id.get((outside.process, fact.record.id.compilation), outside)
        info = BreakInfo(
            _export_headline(fact.kind, fact.subject, fact.reason), hints=_export_hints(fact.kind, fact.subject)
        )
        book.add(EXPORT_KINDS[fact.kind], info, innermost_user_frame(fact.stack), unit, record=fact.record)
    if run.export_records:
        for unit in [*run.compilations, *(rank.outside for rank in run.ranks)]:
            for guard in unit.guards:
                # A detailed guard restricts the export unless it says that it is checked when the program runs.
                if guard.record.kind == "guard_added" and guard.prefix not in CHECKED_AT_RUN_TIME:
                    info = BreakInfo(f"the export holds only if {guard.expression}", hints=[EXPORT_GUARD_HINT])
                    book.add("export-guard", info, innermost_user_frame(guard.stack), unit, record=guard.record)
    return sorted(book.problems.values(), key=lambda p: (SEVERITIES.index(p.severity), -p.cost_us, p.id))


def _of_compilation(book: ProblemBook, unit: Compilation, resumed: dict[tuple[str, str, int], float]) -> None:
    thrown_us = _number(unit, "dynamo_compile_time_before_restart_us")
    told: set[str] = set()
    errors = [b for b in unit.breaks if b.kind == "dynamo_error"]
    breaks = [b for b in unit.breaks if b.kind != "dynamo_error"]
    for text in breaks:
        info = parse_break(text.text)
        site = _break_site(info, text, unit)
        cost_us = thrown_us / max(len(breaks), 1)
        cost_us += resumed.pop((unit.process, _plain_name(unit.function), info.line), 0.0)
        told.add(info.headline)
        book.add("graph-break", info, site, unit, text=text.text, cost_us=cost_us, record=text.record)
    for reason in unit.restart_reasons:
        info = parse_break(reason)
        if info.headline and info.headline not in told:
            told.add(info.headline)
            cost_us = 0.0 if breaks else thrown_us
            book.add("restart", info, unit.site, unit, text=reason, cost_us=cost_us, record=unit.metrics_record)
    if unit.status == "failed":
        _failure(book, unit, errors)
    elif unit.status == "unfinished":
        headline = f"the log ends while {unit.function or 'this frame'} was being compiled"
        info = BreakInfo(headline, hints=["Look at the last phase that began: that is where the process died or hung."])
        book.add("unfinished", info, unit.site, unit)
    elif unit.status == "empty":
        info = BreakInfo(
            "the graph has no operation", hints=["Nothing to do, unless graph breaks around it left it empty."]
        )
        book.add("empty-graph", info, unit.site, unit, cost_us=unit.duration_us or 0.0)
    for guard in unit.guards:
        if guard.kind == "specialization":
            sources = ", ".join(guard.sources.get(guard.expression, []))
            info = BreakInfo(
                f"{sources or guard.expression} became the constant {guard.value}",
                guard.reason.replace("_", " "),
                ["Another size compiles again. If the size varies, look at the line that compares it with a number."],
            )
            book.add("specialization", info, innermost_user_frame(guard.stack), unit, record=guard.record)
    for event in unit.caches:
        if event.state == "bypass":
            info = BreakInfo(f"{event.cache}: {event.reason or 'no reason given'}")
            book.add("cache-bypass", info, None, unit, record=event.record)
    skip = unit.metrics.get("cudagraph_skip_reason")
    if isinstance(skip, str) and skip:
        book.add("cudagraph-skip", BreakInfo(skip.splitlines()[0][:500]), unit.site, unit, text=skip)


def _failure(book: ProblemBook, unit: Compilation, errors: list[BreakText]) -> None:
    fail_type = str(unit.metrics.get("fail_type"))
    reason = unit.metrics.get("fail_reason")
    text = reason if isinstance(reason, str) and reason.strip() else ""
    info = parse_break(text) if text else BreakInfo(f"{fail_type} without a reason")
    kind = "recompile-limit" if LIMIT.search(f"{fail_type} {text}") else "failure"
    if kind == "failure" and fail_type not in ("Unsupported", "None"):
        info.headline = f"{fail_type}: {info.headline}"
    if kind == "recompile-limit" and not info.hints:
        info.hints = [
            "See which guard fails again and again on the page of recompilations, and make that value dynamic."
        ]
    file, line = unit.metrics.get("fail_user_frame_filename"), unit.metrics.get("fail_user_frame_lineno")
    site = unit.site
    if isinstance(file, str) and type(line) is int:
        code = _line_text(unit, file, line) or (_code_of(errors[0].text, file, line) if errors else "")
        site = Frame(file, line, unit.function, code)
    elif errors and (place := user_place(errors[0].text)):
        site = Frame(*place, unit.function, _code_of(errors[0].text, *place))
    full = errors[0].text if errors else text
    record = errors[0].record if errors else unit.metrics_record
    book.add(kind, info, site, unit, text=full, cost_us=unit.duration_us or 0.0, record=record)


def _break_site(info: BreakInfo, text: BreakText, unit: Compilation) -> Frame | None:
    """The user's line: where torch stopped, or what called the library in which it did."""
    place = (info.file, info.line)
    if not info.file or Frame(*place, "", "").is_library:
        called = user_place(text.text)
        if called is None:
            return unit.site
        place = called
    return Frame(*place, unit.function, _line_text(unit, *place) or _code_of(text.text, *place))


def _line_text(unit: Compilation, file: str, line: int) -> str:
    return next((frame.text for frame in unit.stack if frame.file == file and frame.line == line), "")


def _code_of(text: str, file: str, line: int) -> str:
    """The source line that a traceback shows below the place."""
    _, found, rest = text.rpartition(f'File "{file}", line {line},')
    return rest.splitlines()[1].strip()[:300] if found and len(rest.splitlines()) > 1 else ""


def _resumed_us(run: Run) -> dict[tuple[str, str, int], float]:
    """Compile time of the functions that go on after a break, by process, broken function and line."""
    found: dict[tuple[str, str, int], float] = {}
    for unit in run.compilations:
        match = RESUME.match(unit.function)
        if match and len(match["line"]) < 10:
            key = (unit.process, match["function"], int(match["line"]))
            found[key] = found.get(key, 0.0) + (unit.duration_us or 0.0)
    return found


def _plain_name(function: str) -> str:
    match = RESUME.match(function)
    return match["function"] if match else function


def _export_headline(kind: str, subject: str, reason: str) -> str:
    match kind:
        case "missing_fake_kernel":
            return f"{subject} has no fake kernel"
        case "mismatched_fake_kernel":
            return f"the fake kernel of {subject} differs: {reason.strip()}"
        case "guard_on_data_dependent_error":
            return f"cannot decide {subject}"
    return f"{subject} was assumed from the example data"


def _export_hints(kind: str, subject: str) -> list[str]:
    name = subject.rpartition(".")[0] if subject.count(".") > 1 else subject
    operator = name.replace(".", "::", 1)
    match kind:
        case "missing_fake_kernel":
            return [f'Add a fake kernel: @torch.library.register_fake("{operator}")']
        case "mismatched_fake_kernel":
            return [f'Mend the function registered with @torch.library.register_fake("{operator}")']
    return [f"If it always holds, say so before this line: torch._check({subject})"]


def _number(unit: Compilation, name: str) -> float:
    value = unit.metrics.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value < 1e15 else 0.0


def problem_kinds(problems: list[Problem]) -> Iterator[tuple[str, str, int]]:
    """Kind, its words and how many problems it has, in the order of severity."""
    for kind, (_, title) in KINDS.items():
        count = sum(problem.kind == kind for problem in problems)
        if count:
            yield kind, title, count
