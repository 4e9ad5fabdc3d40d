"""What is one measurement? A row: what was measured, on what, against what, and what was aimed at."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """``baseline`` and ``value`` are medians in ``unit``; ``ratio`` is the median of the pairwise ratios.

    ``mode``  "local" or "global" where one thing is measured with both kinds of types; one line of the table has both.
    """

    group: str
    what: str
    unit: str
    baseline: float | None
    value: float
    ratio: float | None = None
    target: str = ""
    mode: str = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def side_by_side(functions: Iterable[Callable[[], float]], repeats: int) -> tuple[list[float], list[float]]:
    """Medians of the measurements, and of their ratios to the first.

    They are taken in turn, so that a slow moment of the machine hits all of them.
    """
    functions = list(functions)
    rounds = [[function() for function in functions] for _ in range(repeats)]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    ratios = [statistics.median(row[i] / row[0] for row in rounds) for i in range(len(functions))]
    return medians, ratios


def microseconds(function: Callable[[], Any], calls: int) -> float:
    """CPU time of one call, on the average of ``calls``: what else the machine does matters little to it."""
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls * 1e6


def table(rows: Iterable[Row]) -> str:
    """A Markdown table for each group."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    lines: list[str] = []
    for group, members in groups.items():
        lines += [f"**{group}**", ""]
        if all(row.mode for row in members):
            lines += [*_by_mode(members), ""]
            continue
        lines += [
            "| | baseline | measured | ratio | target |",
            "| --- | ---: | ---: | ---: | --- |",
        ]
        for row in members:
            baseline = "" if row.baseline is None else f"{row.baseline:.1f} {row.unit}"
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            lines.append(f"| {row.what} | {baseline} | {row.value:.1f} {row.unit} | {ratio} | {row.target} |")
        lines.append("")
    return "\n".join(lines)


def _by_mode(rows: Iterable[Row]) -> list[str]:
    """One line for the rows of one name, which share a baseline."""
    lines = ["| | plain | local types | global types | target |", "| --- | ---: | ---: | ---: | --- |"]
    names: dict[str, list[Row]] = {}
    for row in rows:
        names.setdefault(row.what, []).append(row)
    for name, modes in names.items():
        first = modes[0]
        cells = [f"{row.value:.1f} {row.unit} ({row.ratio:.2f})" for row in modes]
        lines.append(f"| {name} | {first.baseline:.1f} {first.unit} | {' | '.join(cells)} | {first.target} |")
    return lines
