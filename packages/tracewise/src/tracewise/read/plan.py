"""What the checker expects: JSON lines of collectives and findings, as ``shardwise check --schedule`` writes them.

{"v":1,"kind":"collective","rank":3,"group":"tp","ranks":[2,3],"seq":17,"op":"all_reduce","reduce":"sum",
 "dtype":"float32","shape":[4,512],"file":"train.py","line":88,"type":"P->I"}
{"v":1,"kind":"finding","code":"SW104","rank":null,"file":"train.py","line":91,"message":"...","severity":"error"}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewise.read.archive import InputError
from tracewise.read.grammar import parse_json

VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One expected collective. ``rank`` is ``None`` for every rank of the group; ``seq`` counts over the group."""

    rank: int | None
    group: str
    ranks: tuple[int, ...]
    seq: int
    op: str
    reduce: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    line: int
    type: str


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """One finding of the checker."""

    code: str
    rank: int | None
    file: str
    line: int
    message: str
    severity: str


@dataclass(slots=True)
class Plan:
    """What one or several files expect, in their order."""

    steps: list[PlanStep] = field(default_factory=list)
    findings: list[PlanFinding] = field(default_factory=list)

    def of_rank(self, rank: int) -> list[PlanStep]:
        return [step for step in self.steps if step.rank == rank or (step.rank is None and rank in step.ranks)]

    @property
    def ranks(self) -> set[int]:
        """The ranks that the plan speaks of."""
        return {step.rank for step in self.steps if step.rank is not None} | {
            rank for step in self.steps if step.rank is None for rank in step.ranks
        }


def read_plan(paths: list[Path]) -> Plan:
    """The plan in these files. InputError with file and line for what is not of the format."""
    plan = Plan()
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                try:
                    _add(plan, parse_json(line)[0])
                except (ValueError, RecursionError) as error:
                    raise InputError(
                        f"{path}:{number}: not a line of an expected schedule ({error}); "
                        "write one with: shardwise check SCRIPT --ranks all --schedule FILE"
                    ) from None
    return plan


def _add(plan: Plan, value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    if value.get("v") != VERSION:
        raise ValueError(f"version {value.get('v')!r}, expected {VERSION}")
    kind = value.get("kind")
    if kind == "collective":
        ranks, shape = _numbers(value, "ranks"), _numbers(value, "shape")
        plan.steps.append(
            PlanStep(
                _number(value, "rank", True), _text(value, "group"), ranks, _number(value, "seq") or 0,
                _text(value, "op"), _text(value, "reduce"), _text(value, "dtype"), shape,
                _text(value, "file"), _number(value, "line", True) or 0, _text(value, "type"),
            )
        )  # fmt: skip
    elif kind == "finding":
        plan.findings.append(
            PlanFinding(
                _text(value, "code"), _number(value, "rank", True), _text(value, "file"),
                _number(value, "line", True) or 0, _text(value, "message"), _text(value, "severity"),
            )
        )  # fmt: skip
    else:
        raise ValueError(f"kind {kind!r}, expected collective or finding")


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{name} is {found!r}, expected a text")
    return found or ""


def _number(value: dict[str, Any], name: str, may_lack: bool = False) -> int | None:
    found = value.get(name)
    if type(found) is not int and not (may_lack and found is None):
        raise ValueError(f"{name} is {found!r}, expected a number")
    return found


def _numbers(value: dict[str, Any], name: str) -> tuple[int, ...]:
    found = value.get(name)
    if not isinstance(found, list) or not all(type(item) is int for item in found):
        raise ValueError(f"{name} is {found!r}, expected a list of numbers")
    return tuple(found)
