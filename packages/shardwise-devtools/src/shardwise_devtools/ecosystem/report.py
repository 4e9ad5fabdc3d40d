"""The page of what was found in each framework, and the difference between two runs of all of them."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .environment import HERE, TORCH
from .frameworks import Framework
from .planted import BUGS
from .runs import Found, Run

SHOWN = 5
"""Findings of one run that are listed; the others are counted."""
INTRODUCTION = (
    f"Training frameworks as they are released, at debug size on the CPU with `{TORCH}`, none of their code changed.",
    "`make ecosystem` runs them and writes this page; `shardwise-devtools ecosystem --against OLD.json` shows what",
    "another version of shardwise says otherwise. In `check`, a program without annotations is typed by its wrappers",
    "and by torch's own marks or Megatron's; `verify` compares the numbers of all ranks with those of one.",
)
STOPS, OPEN, FINDINGS = "What stops it:", "What leaves it open:", "Findings:"
_OLDER = " (an older run)"
_UNJUDGED = "Not judged."
OUTCOMES = {0: "clean", 1: "findings", 2: "no verdict", 3: "inconclusive", -1: "out of time"}


@dataclass(frozen=True)
class Judgement:
    """What a person says of a finding: ``verdict`` is ``true`` or ``false``, and ``why``."""

    framework: str
    code: str
    words: str
    verdict: str
    why: str

    @property
    def text(self) -> str:
        """As the page has it."""
        return f"**{self.verdict.capitalize()}**: {self.why}."

    def meets(self, run: Run, found: Found) -> bool:
        """Is this the finding that is meant?"""
        return (self.framework, self.code) == (run.framework, found.code) and self.words in found.text


def judgements() -> list[Judgement]:
    """All that is known."""
    with (HERE / "verdicts.toml").open("rb") as file:
        return [Judgement(**entry) for entry in tomllib.load(file).get("finding", ())]


def page(frameworks: Sequence[Framework], runs: Sequence[Run], before: str = "") -> str:
    """The page, in Markdown.

    ``before``  the page as it was: a framework that has cases and was not run now keeps what it says of that, and a row
                that was not run now is marked as an older one, with its findings.
    """
    kept = {text.partition("\n")[0]: text for text in before.split("\n## ")[1:]}
    made = {run.framework for run in runs}
    sections = ["\n".join(("# Frameworks", "", *INTRODUCTION, ""))]
    for framework in frameworks:
        old = kept.get(framework.name) if framework.cases and framework.name not in made else None
        before_it = kept.get(framework.name, "")
        section = _section(framework, runs, _rows(before_it), before_it)
        sections.append("\n".join(section) if old is None else f"## {old}")
    return "\n".join(text.rstrip("\n") + "\n" for text in sections)


def difference(before: Iterable[Run], after: Iterable[Run]) -> str:
    """What one version of shardwise says and the other does not; empty if they say the same."""
    old, new = {run.key: run for run in before}, {run.key: run for run in after}
    lines: list[str] = []
    for key in dict.fromkeys((*old, *new)):
        one, other = old.get(key), new.get(key)
        changes = list(_changes(one, other))
        if changes:
            lines += [" / ".join(key), *(f"  {change}" for change in changes)]
    return "\n".join(lines)


def _changes(one: Run | None, other: Run | None) -> Iterator[str]:
    if one is None or other is None:
        yield "is new" if one is None else "is gone"
        return
    if one.exit_code != other.exit_code:
        yield f"{_outcome(one)} -> {_outcome(other)}"
    if one.stopped != other.stopped:
        yield f"stopped: {one.stopped or 'no'} -> {other.stopped or 'no'}"
    # Lines of the framework move with its version, which is pinned: a finding is the same at the same place only.
    before, after = Counter(one.found), Counter(other.found)
    yield from (f"- {_line(found)}" for found in before - after)
    yield from (f"+ {_line(found)}" for found in after - before)
    for name in dict.fromkeys((*one.counts, *other.counts)):
        if one.counts.get(name) != other.counts.get(name):
            yield f"{name}: {one.counts.get(name, '-')} -> {other.counts.get(name, '-')}"


def _rows(section: str) -> dict[tuple[str, str], str]:
    """The rows of a section as it was, by their first two cells, each marked as an older one."""
    rows: dict[tuple[str, str], str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[2] not in ("outcome", "not run yet", "---"):
            outcome = cells[2] if cells[2].endswith(_OLDER) else cells[2] + _OLDER
            rows[cells[0], cells[1]] = f"| {cells[0]} | {cells[1]} | {outcome} | {cells[3]} |"
    return rows


def _kept(section: str, heading: str, runs: Iterable[Run]) -> list[str]:
    """The lines below a heading of a section as it was that are of a program and a command that were not run now."""
    again = {(run.case, f"`{run.command}`") for run in runs}
    lines = []
    for line in section.partition(f"\n{heading}\n\n")[2].partition("\n\n")[0].splitlines():
        of = re.search(r" \((.+), (`[^`]+`)(?: and \d+ more)?\)\.(?: |$)", line)
        if of is not None and (of[1].rpartition(" (")[2], of[2]) not in again:
            lines.append(line)
    return lines


def _section(
    framework: Framework,
    runs: Sequence[Run],
    older: Mapping[tuple[str, str], str],
    before: str,
) -> Iterator[str]:
    known = judgements()
    own = [run for run in runs if run.framework == framework.name]
    yield from (f"## {framework.name}", "")
    if framework.pins:
        yield "Release: " + ", ".join(f"`{pin}`" for pin in framework.pins) + "."
    if framework.cases:
        yield from ("", "| program | command | outcome | what it rests on |", "| --- | --- | --- | --- |")
        made = {(run.case, run.command): run for run in own}
        for case in framework.cases:
            for command in case.commands:
                run = made.get((case.name, command))
                if run is None and (case.name, f"`{command}`") in older:
                    yield older[case.name, f"`{command}`"]
                    continue
                told = "not run yet | " if run is None else f"{_outcome(run)} | {_rests(run)}"
                yield f"| {case.name} | `{command}` | {told} |"
    wrong = {bug.name: bug for bug in BUGS if bug.framework == framework.name}
    met = [run for run in own if run.case in wrong]
    own = [run for run in own if run.case not in wrong]
    yield from _told(STOPS, ((run.stopped, run) for run in own if run.stopped), _kept(before, STOPS, own))
    yield from _told(OPEN, ((text, run) for run in own for text in run.open), _kept(before, OPEN, own))
    found = _by_finding(own)
    untold = _kept(before, FINDINGS, own)
    if found or untold:
        yield from ("", FINDINGS, "")
        for one, places in list(found.items()):
            yield f"- {_escaped(_line(one))} ({_where(places)}). {_judged(known, one, places[0])}"
        yield from (_judged_anew(known, framework, line) for line in untold)
    tried = {run.case for run in met}
    untried = [bug for name, bug in wrong.items() if name not in tried and (bug.case, bug.what) in older]
    if met or untried:
        yield from ("", "Planted bugs, one change each, and what `verify` names first:", "")
        yield from ("| program | bug | outcome | named first |", "| --- | --- | --- | --- |")
        for run in met:
            bug = wrong[run.case]
            first = _line(run.found[0]) if run.found else run.stopped or "; ".join(run.open)
            yield f"| {bug.case} | {bug.what} | {_outcome(run)} | {_escaped(first)} |"
        yield from (older[bug.case, bug.what] for bug in untried)
    if framework.defects:
        yield from ("", "Defects of it that were met:", "", *(f"- {one}." for one in framework.defects))
    if framework.cannot:
        yield from ("", "Not run here:", "", *(f"- {reason}." for reason in framework.cannot))


def _told(heading: str, said: Iterable[tuple[str, Run]], kept: Sequence[str]) -> Iterator[str]:
    """What is said of runs, each text once with the first of them, and what the page has said of others."""
    places: dict[str, list[Run]] = {}
    for text, run in said:
        places.setdefault(text, []).append(run)
    if places or kept:
        yield from ("", heading, "", *(f"- {_escaped(text)} ({_where(runs)})." for text, runs in places.items()), *kept)


def _by_finding(runs: Iterable[Run]) -> dict[Found, list[Run]]:
    found: dict[Found, list[Run]] = {}
    for run in runs:
        for one in run.found[:SHOWN]:
            found.setdefault(one, []).append(run)
    return found


def _judged(known: Sequence[Judgement], found: Found, run: Run) -> str:
    judgement = next((one for one in known if one.meets(run, found)), None)
    return _UNJUDGED if judgement is None else judgement.text


def _judged_anew(known: Sequence[Judgement], framework: Framework, line: str) -> str:
    """A line of a section as it was, with the verdict that its finding has been given since."""
    told, unjudged, _ = line.partition(_UNJUDGED)
    code, text = told.removeprefix("- ").partition(" ")[0], told.replace("\\", "").replace("&lt;", "<")
    met = (
        one for one in known if (one.framework, one.code) == (framework.name, code.rstrip(":")) and one.words in text
    )
    judgement = next(met, None) if unjudged else None
    return line if judgement is None else told + judgement.text


def _where(places: Sequence[Run]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{places[0].case}, `{places[0].command}`{more}"


def _line(found: Found) -> str:
    return f"{found.code} {found.place}: {found.text}" if found.place else f"{found.code}: {found.text}"


def _outcome(run: Run) -> str:
    return OUTCOMES.get(run.exit_code, f"exit code {run.exit_code}")


def _rests(run: Run) -> str:
    names = {
        "checked_ops": "operations checked",
        "unchecked_ops": "not",
        "equal": "tensors as on one rank",
        "replicas": "equal between ranks",
        "not_compared": "not compared",
    }
    parts = [f"{run.counts[name]} {text}" for name, text in names.items() if name in run.counts]
    more = len(run.found) - SHOWN
    return ", ".join(parts) + (f"; {more} more findings" if more > 0 else "")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("_", "\\_").replace("*", "\\*").replace("`", "'")
