"""What the report as a page says of a verdict's numbers."""

from __future__ import annotations

from collections import Counter

from shardwise.diagnostics.printing.paint import plain
from shardwise.diagnostics.result import Noted
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.report.page import NumbersSection

from .distance.numbers import ValueDisagreement
from .text import Verdict, numbers_lines, summary_lines


def numbers_section(verdict: Verdict) -> NumbersSection:
    """The numbers of ``verdict``: the sentence of its last line, what disagrees, and what was not compared."""
    numbers = verdict.numbers
    said = plain(summary_lines(verdict)[-1:]).removeprefix("numbers: ")
    if verdict.failure is not None:
        said = f"the run {verdict.failure.where} did not come to its end: {verdict.failure.text}"
    tone = "error" if verdict.failure is not None or numbers.disagreements or not numbers.compared else "good"
    left_out: Counter[tuple[str, SourceLocation | None]] = Counter()
    for one in numbers.not_compared:
        left_out[f"{one.key.source}: {one.reason}", one.key.location] += 1
    return NumbersSection(
        said,
        "warning" if tone == "good" and numbers.open_questions else tone,
        tuple(_disagreement(one) for one in numbers.disagreements),
        tuple(Noted(what, location, count) for (what, location), count in left_out.items()),
        numbers_lines(verdict),
    )


def _disagreement(wrong: ValueDisagreement) -> Noted:
    found = wrong.difference
    size = "" if found is None else f", by up to {found.largest:.3g} where the largest is {found.scale:.3g}"
    return Noted(f"{wrong.key} {wrong.said}{size} ({wrong.claim})", wrong.key.location)
