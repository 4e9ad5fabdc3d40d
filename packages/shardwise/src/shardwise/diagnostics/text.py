"""The terminal form of a run: its findings, why it ended early, what it rests on, and the summary in the last line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from .finding import WIDTH, absolute_root, finding_lines, location_text
from .printing.limits import DEFAULT, Limits, counted, rest
from .printing.paint import Line, paint
from .printing.printable import safe_str
from .printing.ranks import ranks_text
from .result import ExitCode, HeldBack, HeldBackBy, Noted, RunResult

_VERDICTS = {
    ExitCode.CLEAN: "clean",
    ExitCode.FINDINGS: "",
    ExitCode.BROKEN: "no verdict",
    ExitCode.INCONCLUSIVE: "inconclusive",
}


_HELD_BACK_BY = {
    HeldBackBy.COMMENT: "comments",
    HeldBackBy.CODE: "the choice of codes",
    HeldBackBy.FILE: "per-file-ignores",
    HeldBackBy.BASELINE: "the baseline",
}


def render_result(
    result: RunResult, *, color: bool = False, width: int = WIDTH, root: str | None = None, limits: Limits = DEFAULT
) -> str:
    """A whole run: findings, why it ended early, what was trusted, and the summary in the last line."""
    root = absolute_root(root)
    blocks = [finding_lines(finding, width, root, limits) for finding in result.findings[: limits.findings]]
    more = rest(len(result.findings), limits.findings, "finding", "findings")
    if more:
        blocks.append([[("quiet", more)]])
    if result.ending is not None and not result.ends_with_error:
        blocks.append(finding_lines(result.ending, width, root, limits))
    if result.no_rule_ops:
        blocks.append(_no_rule_ops(result, limits))
    if result.trusted:
        more = rest(len(result.trusted), limits.trusted, "trusted entry", "trusted entries")
        blocks.append(_places("trusted, not proven:", result.trusted[: limits.trusted], more, root))
    if result.lost:
        more = rest(len(result.lost), limits.lost, "lost type", "lost types")
        blocks.append(_places("types lost:", result.lost[: limits.lost], more, root))
    if result.unchecked and limits.unchecked != 0:
        blocks.append(_places("not checked:", result.unchecked, None, root))
    if result.not_followed:
        blocks.append([[("strong", "not followed: "), ("", safe_str(part))] for part in result.not_followed])
    if result.held_back:
        blocks.append(_held_back(result, limits, root))
    if result.gone:
        blocks.append(_gone(result, limits))
    if not result.interrupted:
        blocks += filter(None, [_not_typed(result)])
    blocks.append([_summary(result)])
    lines: list[Line] = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return paint(lines, color=color)


def _no_rule_ops(result: RunResult, limits: Limits) -> list[Line]:
    shown = [f"{safe_str(op)} ({counted(count, 'call')})" for op, count in result.no_rule_ops[: limits.no_rule_ops]]
    lines: list[Line] = [[("strong", "operators without a rule: "), ("", ", ".join(shown))]]
    more = rest(len(result.no_rule_ops), limits.no_rule_ops, "operator", "operators")
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def _places(heading: str, entries: Sequence[Noted], more: str | None, root: str) -> list[Line]:
    lines: list[Line] = [[("strong", heading)]]
    for entry in entries:
        text = f"  {safe_str(entry.what)}"
        if entry.location is not None:
            text += f" ({location_text(entry.location, root)})"
        lines.append([("", text + (f", {entry.count} times" if entry.count > 1 else ""))])
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def held_back_text(held_back: Sequence[HeldBack]) -> str:
    """``held back: 3 findings by the baseline, 1 finding by a comment``."""
    counts = Counter(one.by for one in held_back)
    parts = [f"{counted(counts[by], 'finding')} by {_HELD_BACK_BY[by]}" for by in HeldBackBy if counts[by]]
    return f"held back: {', '.join(parts)}"


def _held_back(result: RunResult, limits: Limits, root: str) -> list[Line]:
    heading, colon, said = held_back_text(result.held_back).partition(": ")
    lines: list[Line] = [[("strong", heading + colon), ("", said)]]
    if limits.held_back == 0:
        return lines
    for one in result.held_back:
        where = "" if one.finding.location is None else f"{location_text(one.finding.location, root)} "
        why = f": {safe_str(one.reason)}" if one.reason else ""
        lines.append([("", f"  {where}{safe_str(one.finding.headline)} (by {_HELD_BACK_BY[one.by]}{why})")])
    return lines


def _gone(result: RunResult, limits: Limits) -> list[Line]:
    lines: list[Line] = [
        [("strong", "gone: "), ("", f"{counted(len(result.gone), 'finding')} of the baseline not found again")]
    ]
    lines += [[("", f"  {safe_str(line)}")] for line in result.gone[: limits.trusted]]
    more = rest(len(result.gone), limits.trusted, "finding", "findings")
    return [*lines, [("quiet", f"  {more}")]] if more else lines


def _not_typed(result: RunResult) -> list[Line]:
    """What has no type, and what to do about it; nothing if everything has one."""
    coverage, lines = result.coverage, []
    if result.errors:  # what was refused is unknown, and so are the gradients that follow from it
        coverage = replace(coverage, unjudged_gradients=(), unjudged_losses=())
    way = f"{safe_str(result.command('infer'))} --write puts their types into the source"
    if coverage.untyped:
        lines.append(("without a type: ", f"{coverage.untyped}; what follows from them is unknown"))
    elif result.inconclusive and not coverage.has_modules:
        lines.append(("without a type: ", "most of what the program works on; what follows from it is unknown"))
        way = "shardwise.assert_type(x, ...) where it makes or reads its inputs says what they are"
    lines += [("not judged: ", safe_str(one)) for one in coverage.unjudged]
    if result.inconclusive and not result.checked_ops:
        compared = ", and what ranks exchange was compared by its calls alone" if result.ranks else ""
        lines.append(("not judged: ", f"what the program computes: no operation met a type{compared}"))
    if not lines:
        return []
    ways = [] if coverage.is_data_assumed and not (coverage.untyped or coverage.unjudged[1:]) else [way]
    if coverage.is_data_assumed and not result.ranks:
        ways.append(f"{safe_str(result.command('check'))} --ranks all compares the data of all ranks")
    if result.inconclusive:
        ways.append(f"{safe_str(result.command('verify'))} compares the numbers and needs no types")
    return [*([("strong", heading), ("", said)] for heading, said in lines), *([("quiet", f"  {way}")] for way in ways)]


def _summary(result: RunResult) -> Line:
    kinds = {"error": result.errors, "warning": result.warnings, "note": result.notes}
    said = [counted(len(found), noun) for noun, found in kinds.items() if found]
    places = [place.location for finding in result.findings for place in finding.places]
    lines = {(place.file, place.line) for place in places if place is not None}
    found = ", ".join(said) + (f" in {counted(len(lines), 'line')}" if said and lines else "")
    checked = f"{counted(result.checked_ops, 'operation')} checked"
    if result.unchecked_ops:
        checked += f", {result.unchecked_ops} unchecked"
    if result.lost:
        checked += f", {counted(sum(lost.count for lost in result.lost), 'type')} lost"
    if result.held_back:
        checked += f", {counted(len(result.held_back), 'finding')} held back"
    if any(finding.configured is not None for finding in result.findings):
        checked += ", severity as configured"
    verdict = _VERDICTS[result.exit_code]
    style = "good" if result.exit_code is ExitCode.CLEAN else "error"
    head = ", ".join(part for part in (verdict, found) if part)
    where = f" on mesh {safe_str(result.mesh)}" if result.mesh else ""
    if result.ranks:
        where += f"; {ranks_text(result.ranks)} compared in {counted(result.collectives, 'call')}"
    apart = {rank for one in result.coverage.own_data for rank in one.apart}
    if apart:
        where += f"; {ranks_text(sorted(apart))} have data of their own"
    return [(style, head), ("", f"; {checked}{where}")]
