"""What does the report of a mutation run look like? Text for a person, JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from .judge import Fate, Judged, Tally

VERSION = 1
_ORDER = (Fate.SURVIVED, Fate.FALSE_ALARM, Fate.VERIFIED, Fate.KILLED, Fate.MISDECLARED, Fate.HARMLESS, Fate.LOUD)


def to_text(judged: Sequence[Judged], *, everything: bool = False) -> str:
    """Survivors and false alarms in full, the rest counted; ``everything`` lists every mutant."""
    return "\n".join(_lines(Tally(judged), everything))


def _lines(tally: Tally, everything: bool) -> Iterator[str]:
    for fate in _ORDER if everything else _ORDER[:2]:
        for one in tally.of(fate):
            yield f"{fate.value}: {one.mutant.operator} at {one.mutant.place}"
            yield f"  - {one.mutant.before}"
            yield f"  + {one.mutant.after}"
            if one.measured.detail:
                yield f"  numbers: {one.measured.detail}"
            for said in one.said:
                if said.findings:
                    yield f"  {said.mode}: {', '.join(said.findings[:3])}"
            if one.reason:
                yield f"  explained: {one.reason}"
            yield ""
    yield summary(tally)


def summary(tally: Tally) -> str:
    """One line of counts."""
    counts = ", ".join(f"{tally.count(fate)} {_plural(fate, tally.count(fate))}" for fate in _ORDER)
    return f"{len(tally.judged)} mutants: {counts}; {tally.survival:.1%} of the silent ones survive"


def _plural(fate: Fate, count: int) -> str:
    return "false alarms" if fate is Fate.FALSE_ALARM and count != 1 else fate.value


def to_json(judged: Sequence[Judged]) -> str:
    """Every mutant, and the counts; ``version`` counts up when a field changes its meaning."""
    tally = Tally(judged)
    report = {
        "version": VERSION,
        "counts": {fate.value.replace(" ", "_"): tally.count(fate) for fate in Fate},
        "survival": tally.survival,
        "mutants": [_entry(one) for one in judged],
    }
    return json.dumps(report, indent=2)


def _entry(one: Judged) -> dict[str, Any]:
    return {
        "place": {"file": str(one.mutant.source.path), "line": one.mutant.line},
        "operator": one.mutant.operator,
        "before": one.mutant.before,
        "after": one.mutant.after,
        "fate": one.fate.value.replace(" ", "_"),
        "numbers": {"outcome": one.measured.numbers.value, "detail": one.measured.detail},
        "types": {said.mode: list(said.findings) for said in one.said},
        "reason": one.reason,
    }
