"""What happened against what the checker expected: at which step of the plan a rank did something else.

plan of rank 1    all_reduce:21  broadcast:31  all_gather:35 ...
it called         all_reduce:21  all_reduce:21                 stopped following the plan at step 2, train.py:31
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from tracewise.model.collectives import Group, Kind, Recording
from tracewise.model.entities import Frame
from tracewise.ranks.explanation import explain
from tracewise.ranks.wording import place, ranks_text, sentence
from tracewise.read.plan import Plan, PlanFinding, PlanStep

# Departing is a fault; the others wait for it, and cannot finish.
KINDS = ("departed", "beyond", "unfinished")
# What the recorder notes of these on one rank is not what the program hands in there.
UNSIZED = frozenset(("barrier", "scatter", "gather", "all_to_all", "send", "recv"))


@dataclass(slots=True)
class Deviation:
    """One way in which ranks did not follow the plan; ``step`` counts a rank's expected calls from 1."""

    kind: str
    ranks: list[int]
    step: int
    expected: PlanStep | None
    text: str

    def as_json(self) -> dict[str, Any]:
        expected = self.expected
        return {
            "kind": self.kind, "ranks": self.ranks, "step": self.step, "text": self.text,
            "expected": {"op": expected.op, "group": expected.group, "file": expected.file, "line": expected.line}
            if expected else None,
        }  # fmt: skip


@dataclass(slots=True)
class PlanAnswer:
    """How the ranks followed the plan; ``compared`` calls were laid against it."""

    deviations: list[Deviation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[PlanFinding] = field(default_factory=list)
    compared: int = 0

    @property
    def headline(self) -> str:
        if self.deviations:
            return self.deviations[0].text
        if not self.compared:
            return "The plan expects nothing of the ranks that left a file: cannot tell."
        return f"Everything that happened was expected: {self.compared} collectives."

    def as_json(self) -> dict[str, Any]:
        return {
            "headline": self.headline,
            "compared": self.compared,
            "deviations": [deviation.as_json() for deviation in self.deviations],
            "notes": self.notes,
            "findings": [
                {"code": f.code, "rank": f.rank, "file": f.file, "line": f.line, "message": f.message,
                 "severity": f.severity} for f in self.findings
            ],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Call:
    """One side of the comparison; ``group`` is a number that both sides share, ``elements`` -1 if not to compare."""

    op: str
    group: int
    dtype: str
    elements: int
    place: str

    def difference(self, other: _Call) -> str:
        """What differs first: op, group, dtype or size; empty if the calls fit."""
        for name in ("op", "group", "dtype", "elements"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and mine not in ("", -1) and theirs not in ("", -1):
                return name
        return ""

    @property
    def token(self) -> tuple[str, int]:
        return self.op, self.group


def follow(recording: Recording, plan: Plan) -> PlanAnswer:
    """The deviations of all ranks; equal ones are told once."""
    answer = PlanAnswer(findings=plan.findings)
    expected_of = plan.ranks
    missing = sorted(recording.ranks - expected_of)
    if missing:
        answer.notes.append(f"The plan says nothing of {ranks_text(missing)}; write it with --ranks all.")
    found: dict[tuple[str, int, str], list[Deviation]] = defaultdict(list)
    for rank in sorted(recording.ranks & expected_of):
        deviation = _of_rank(recording, plan, rank, answer)
        if deviation is not None:
            found[deviation.kind, deviation.step, deviation.text].append(deviation)
    for (kind, step, text), same in found.items():
        ranks = [deviation.ranks[0] for deviation in same]
        named = text.replace("{ranks}", sentence(ranks_text(ranks)))
        answer.deviations.append(Deviation(kind, ranks, step, same[0].expected, named))
    answer.deviations.sort(key=lambda deviation: (KINDS.index(deviation.kind), deviation.step, deviation.ranks))
    return answer


def _of_rank(recording: Recording, plan: Plan, rank: int, answer: PlanAnswer) -> Deviation | None:
    numbers = _GroupNumbers(recording)
    steps = [(number, step) for number, step in enumerate(plan.of_rank(rank), 1)]
    calls = recording.calls_of(rank)
    # The recorder is a ring: steps before its first call over a group have been forgotten.
    first = {
        numbers.of_group(recording.groups[schedule.group]): schedule.seqs[0]
        for schedule, position in calls
        if not position
    }
    steps = [(n, step) for n, step in steps if step.seq >= first.get(numbers.of_step(step), 1)]
    steps = [(n, step) for n, step in steps if step.op not in ("send", "recv")]
    expected = [_expected(step, numbers) for _, step in steps]
    actual = []
    for schedule, position in calls:
        kind = recording.kinds[schedule.kinds[position]]
        site = recording.sites[schedule.sites[position]]
        actual.append(_actual(kind, numbers.of_group(recording.groups[schedule.group]), site))
    answer.compared += min(len(expected), len(actual))
    for index, (mine, planned) in enumerate(zip(actual, expected, strict=False)):
        what = planned.difference(mine)
        if what:
            number, step = steps[index]
            text = f"{{ranks}} stopped following the plan at expected step {number}{_where(step)}: "
            text += _said(what, planned, mine, step)
            why = explain([call.token for call in expected[index:]], [call.token for call in actual[index:]])
            if why is not None and why.what in ("skipped", "extra"):
                text += (
                    f" {why.count} {why.what} {'call' if why.count == 1 else 'calls'}; after that the plan fits again."
                )
            return Deviation("departed", [rank], number, step, text)
    if len(actual) > len(expected):
        extra = actual[len(expected)]
        count = len(actual) - len(expected)
        text = f"{{ranks}} went on beyond the plan: {count} more calls, first {extra.op}{extra.place}."
        return Deviation("beyond", [rank], len(expected) + 1, None, text)
    if len(expected) > len(actual):
        number, step = steps[len(actual)]
        left = len(expected) - len(actual)
        text = f"{{ranks}} never finished the plan: {left} {'steps' if left > 1 else 'step'} left, "
        text += f"next is step {number}, {step.op}{_where(step)}."
        return Deviation("unfinished", [rank], number, step, text)
    return None


class _GroupNumbers:
    """Groups of the plan and of the recording as the same numbers: by members, else by name."""

    def __init__(self, recording: Recording) -> None:
        self.groups = list(recording.groups.values())
        self._of_step: dict[tuple[str, tuple[int, ...]], int] = {}

    def of_group(self, group: Group) -> int:
        return next(n for n, other in enumerate(self.groups) if other is group)

    def of_step(self, step: PlanStep) -> int:
        key = step.group, step.ranks
        if key not in self._of_step:
            self._of_step[key] = self._find(step)
        return self._of_step[key]

    def _find(self, step: PlanStep) -> int:
        members = set(step.ranks)
        exact = [n for n, group in enumerate(self.groups) if group.members == members]
        named = [n for n in exact if step.group in (self.groups[n].name, self.groups[n].description)]
        # Some dumps are missing, or do not list the members: those that are known lie inside.
        inside = [n for n, g in enumerate(self.groups) if not g.is_certain and g.members and g.members <= members]
        found = named or exact or inside
        return found[0] if found else -2


def _expected(step: PlanStep, numbers: _GroupNumbers) -> _Call:
    elements = -1 if step.op in UNSIZED else math.prod(step.shape)
    return _Call(step.op, numbers.of_step(step), "" if step.op in UNSIZED else step.dtype, elements, _where(step))


def _actual(kind: Kind, group: int, site: Frame | None) -> _Call:
    is_sized = kind.op not in UNSIZED and bool(kind.sizes)
    dtype = kind.dtypes[0] if is_sized and kind.dtypes else ""
    return _Call(kind.op, group, dtype, math.prod(kind.sizes[0]) if is_sized else -1, place(site))


def _said(what: str, planned: _Call, mine: _Call, step: PlanStep) -> str:
    match what:
        case "op":
            return f"{planned.op} was expected, it called {mine.op}{mine.place}."
        case "group":
            return f"{planned.op} was expected over {step.group or ranks_text(step.ranks)}, not over another group."
        case "dtype":
            return f"{planned.op} of {planned.dtype} was expected, it passed {mine.dtype}{mine.place}."
    return f"{planned.op} of {planned.elements} elements was expected, it passed {mine.elements}{mine.place}."


def _where(step: PlanStep) -> str:
    return f" ({PurePath(step.file).name}:{step.line})" if step.file else ""
