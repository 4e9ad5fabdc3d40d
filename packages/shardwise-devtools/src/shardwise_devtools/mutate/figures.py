"""What became of the mutants of each program: counts, survivors and false alarms, as a file and as a page of the docs.

A program is run again when it has changed, and its figures take the place of those it had.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .corpus import ROOT, RightProgram
from .judge import Fate, Judged

DATA = ROOT / "docs" / "mutants.json"
PAGE = ROOT / "docs" / "mutants.md"
HEAD = """\
# Mutants

How often would a mistake slip through? `shardwise mutate` makes one at a time in programs that are right: it drops or
doubles a collective, names another axis, dim or transition, moves it past another operation, divides a loss by another
count; sends a message to another neighbour, with another tag or not at all, asks for another group, exchanges blocks or
pieces, names another placement in a type, takes a mean for a sum. Each mutant runs on real processes, one a rank, and
on one; the numbers decide whether it is wrong, and then the checker is asked, with local and global types. The
programs are those of [the zoo](guide/zoo.md) and `examples/gpt`. This page is written by `shardwise-devtools mutants
--write`.

| fate | meaning |
| --- | --- |
| killed | the numbers are wrong, and the checker says so |
| found by verify | the numbers are wrong; the checker accepts the program, and `shardwise verify` says so |
| survived | the numbers are wrong, and neither says so |
| false alarm | the numbers are right, and the checker rejects the program |
| misdeclared | it runs bit for bit as before; what it declares is another type than the tensors have, and is rejected |
| harmless | the numbers are right, and the checker accepts the program |
| loud | it raises or hangs by itself: no silent mistake |

"""


@dataclass(frozen=True)
class Shown:
    """A survivor or a false alarm; ``reason`` is empty if nobody has explained it."""

    place: str
    operator: str
    before: str
    after: str
    reason: str

    @property
    def row(self) -> str:
        change = f"{self.operator}: `{_cell(self.before)}` becomes `{_cell(self.after)}`"
        return f"`{self.place}` | {change} | {self.reason or '**not explained**'}"


@dataclass(frozen=True)
class Figures:
    """Of one program: how many mutants met each fate, and those that need a reason."""

    counts: Mapping[str, int]
    survivors: tuple[Shown, ...] = ()
    false_alarms: tuple[Shown, ...] = ()

    @property
    def mutants(self) -> int:
        return sum(self.counts.values())

    @property
    def unexplained(self) -> list[Shown]:
        return [one for one in (*self.survivors, *self.false_alarms) if not one.reason]


def figures_of(judged: Sequence[Judged]) -> Figures:
    """The figures of a run."""
    counts = {fate.value: sum(one.fate is fate for one in judged) for fate in Fate}
    shown = {
        fate: tuple(
            Shown(one.mutant.place, one.mutant.operator, one.mutant.before, one.mutant.after, one.reason)
            for one in judged
            if one.fate is fate
        )
        for fate in (Fate.SURVIVED, Fate.FALSE_ALARM)
    }
    return Figures(counts, shown[Fate.SURVIVED], shown[Fate.FALSE_ALARM])


def read_figures(path: Path = DATA) -> dict[str, Figures]:
    """By program; empty if there is no file."""
    if not path.is_file():
        return {}
    return {
        name: Figures(
            one["counts"],
            *(tuple(Shown(**shown) for shown in one[kind]) for kind in ("survivors", "false_alarms")),
        )
        for name, one in json.loads(path.read_text()).items()
    }


def written(figures: Mapping[str, Figures]) -> str:
    """The file."""
    return json.dumps({name: asdict(one) for name, one in figures.items()}, indent=1) + "\n"


def page(figures: Mapping[str, Figures], unmeasured: Sequence[str] = ()) -> str:
    """The page of all programs; ``unmeasured`` have not been run since they were written or changed."""
    fates = [fate.value for fate in Fate]
    total = {fate: sum(one.counts.get(fate, 0) for one in figures.values()) for fate in fates}
    rows = {**{name: one.counts for name, one in figures.items()}, "**all**": total}
    lines = [HEAD, "| program | " + " | ".join(fates) + " |", "| --- " * (len(fates) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(str(counts.get(fate, 0)) for fate in fates) + " |" for name, counts in rows.items()
    ]
    survived, count = total[Fate.SURVIVED.value], sum(total.values())
    silent = survived + total[Fate.KILLED.value] + total[Fate.VERIFIED.value]
    lines += ["", f"Of {count} mutants {silent} are silent mistakes; {survived} of them survive, which is"]
    lines += [
        f"{survived / max(count, 1):.1%} of all mutants and {survived / max(silent, 1):.1%} of the silent ones.",
        "",
    ]
    if unmeasured:
        lines += [f"Not measured since they were written or changed: {', '.join(unmeasured)}.", ""]
    for title, of in (("Survivors", "survivors"), ("False alarms", "false_alarms")):
        shown = [f"| {name}, {one.row} |" for name, figures_ in figures.items() for one in getattr(figures_, of)]
        lines += [f"## {title}", ""]
        lines += ["| place | mistake | why |", "| --- | --- | --- |", *shown] if shown else ["None."]
        lines.append("")
    return "\n".join(lines)


def unmeasured(figures: Mapping[str, Figures], subjects: Iterable[RightProgram]) -> list[str]:
    """The programs that have no figures, or not those of the mutants that they have now."""
    return [one.name for one in subjects if one.name not in figures or figures[one.name].mutants != len(one.mutants)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
