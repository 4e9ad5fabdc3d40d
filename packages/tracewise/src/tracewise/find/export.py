"""Whether an export may be trusted: sound, not sound, or no verdict, each with its reasons.

Sound needs all of: the exported program is there, nothing speaks against it, and the log has no damage. A record that
could not be read may have been the one that speaks against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracewise.find.problems import EXPORT_KINDS, Problem
from tracewise.model.entities import Expression, Record, Run

Verdict = Literal["sound", "not sound", "no verdict"]
MAX_TREE = 200


@dataclass(slots=True)
class ExportAnswer:
    """The verdict on the exports of a run."""

    verdict: Verdict
    reasons: list[str]
    problems: list[Problem]
    programs: list[Record]


def find_export(run: Run, problems: list[Problem]) -> ExportAnswer | None:
    """The verdict, or ``None`` if the run has no record of an export."""
    if not run.export_records and not run.export_facts:
        return None
    mine = [problem for problem in problems if problem.kind in {*EXPORT_KINDS.values(), "export-guard"}]
    programs = [record for record in run.export_records if record.kind == "exported_program"]
    begun = [record for record in run.export_records if record.kind == "export"]
    unclear = [f"{count} × {name.replace('_', ' ')} in the log" for name, count in sorted(run.health.damage.items())]
    if not programs:
        unclear.insert(0, "the log has no exported program")
    elif len(programs) < len(begun):
        unclear.insert(0, f"{len(begun)} exports began and {len(programs)} programs were written")
    if any(record.is_damaged for record in programs):
        unclear.append("the text of the exported program is damaged")
    if mine:
        return ExportAnswer("not sound", [problem.headline for problem in mine], mine, programs)
    return ExportAnswer("no verdict" if unclear else "sound", unclear, mine, programs)


def expression_tree(expressions: dict[int, Expression], node_id: int | None) -> list[tuple[int, str]]:
    """How an expression came to be: depth and text of each step, the expression itself first.

    Ids may repeat and form circles in a log; each is told once.
    """
    lines: list[tuple[int, str]] = []
    seen: set[int] = set()
    pending = [(0, node_id)]
    while pending and len(lines) < MAX_TREE:
        depth, number = pending.pop()
        expression = expressions.get(number) if number is not None else None
        if expression is None or number in seen or number is None:
            continue
        seen.add(number)
        place = expression.stack[-1].place if expression.stack else ""
        arguments = ", ".join(expression.arguments)
        lines.append((depth, f"{expression.result} = {expression.method}({arguments})  {place}".rstrip()))
        pending += [(depth + 1, argument) for argument in reversed(expression.argument_ids)]
    return lines
