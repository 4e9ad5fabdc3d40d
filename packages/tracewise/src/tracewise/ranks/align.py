"""The compilations of the ranks beside each other, by content and not by compile id.

ranks 0-6    f  g  h
rank 7       f  k  h        at position 2 rank 7 compiled k where the others compiled g

Ranks with equal sequences are one class; each class is laid against the one of most ranks by what both have in order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from tracewise.find.graph_text import fingerprint
from tracewise.model.entities import Compilation, Rank, Record, Run
from tracewise.model.payloads import Payloads
from tracewise.ranks.wording import place, ranks_text, seconds
from tracewise.read.health import Health

# The most severe first. From the fifth on ranks do the same work, only not as fast.
LEVELS = (
    "hang risk",
    "different program",
    "different shapes",
    "different recompilations",
    "different cache state",
    "different time",
)
HARMLESS = 4
GRAPHS = ("dynamo_output_graph", "compiled_autograd_graph", "aot_joint_graph", "aot_inference_graph")
ANNOTATION = re.compile(r'"[A-Za-z0-9_]+(?:\[[^"\n]*|\([^"\n]*\))"')
GROUP_NAME = re.compile(r"'\d+'")
GRAPH_BYTES = 4 << 20
MOST_CLASSES = 100
MOST_COLUMNS = 64
SLOW_US = 1_000_000
SLOW_FACTOR = 1.5


class Signature(NamedTuple):
    """What a compilation is, as far as ranks must agree. ``structure`` is the graph without sizes."""

    function: str
    place: str
    collectives: tuple[str, ...]
    structure: str
    shapes: str


@dataclass(slots=True)
class Difference:
    """One disagreement; ``position`` counts compilations from 1, 0 stands for the whole sequence."""

    level: str
    ranks: list[int]
    position: int
    text: str
    mine: Compilation | None = None
    others: Compilation | None = None


@dataclass(slots=True)
class RankClass:
    """Ranks that compiled the same things in the same order, with the compilations of the first of them."""

    ranks: list[int]
    signatures: tuple[Signature, ...]
    units: list[Compilation]
    cells: list[str] = field(default_factory=list)
    extra: int = 0


@dataclass(slots=True)
class Wait:
    """What the slowest rank of a compilation takes more than the fastest: others stand in the next collective."""

    unit: Compilation
    slowest: int
    fastest: int
    spread_us: float


@dataclass
class Alignment:
    """What the trace logs say of the ranks; ``classes`` begins with the one that others are laid against."""

    ranks: list[int]
    classes: list[RankClass]
    differences: list[Difference] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    health: Health = field(default_factory=Health)

    @property
    def diverges(self) -> bool:
        return any(LEVELS.index(difference.level) < HARMLESS for difference in self.differences)

    @property
    def is_whole(self) -> bool:
        return len(self.ranks) > 1 and self.health.is_clean

    @property
    def headline(self) -> str:
        if self.differences:
            return f"{self.differences[0].level}: {self.differences[0].text}"
        if len(self.ranks) < 2:
            return "The logs are of one rank: nothing to compare it with."
        damage = "" if self.health.is_clean else " in what could be read"
        return f"All {len(self.ranks)} ranks agree{damage}: {len(self.classes[0].units)} compilations each."

    def as_json(self) -> dict[str, Any]:
        return {
            "headline": self.headline,
            "ranks": self.ranks,
            "classes": [{"ranks": c.ranks, "compilations": [str(unit.id) for unit in c.units]} for c in self.classes],
            "differences": [
                {"level": d.level, "ranks": d.ranks, "position": d.position, "text": d.text} for d in self.differences
            ],
            "waits": [
                {"id": str(w.unit.id), "slowest": w.slowest, "fastest": w.fastest, "spread_us": w.spread_us}
                for w in self.waits
            ],
        }


def align(run: Run, payloads: Payloads) -> Alignment:
    """Lays the ranks of a run beside each other."""
    graphs = _Graphs(payloads)
    by_sequence: dict[tuple[Signature, ...], list[tuple[int, list[Compilation]]]] = defaultdict(list)
    for rank in run.ranks:
        if rank.number is not None:
            units = _in_order(rank)
            by_sequence[tuple(graphs.signature(unit) for unit in units)].append((rank.number, units))
    classes = [
        RankClass([number for number, _ in members], signatures, members[0][1])
        for signatures, members in by_sequence.items()
    ]
    classes.sort(key=lambda found: (-len(found.ranks), found.ranks[0]))
    ranks = sorted(rank for found in classes for rank in found.ranks)
    alignment = Alignment(ranks, classes, health=run.health)
    if not classes:
        return alignment
    path = classes[0]
    path.cells = ["A"] * len(path.signatures)
    for other in classes[1:MOST_CLASSES]:
        alignment.differences += _differences(path, other)
    if len(classes) > MOST_CLASSES:
        text = f"{len(classes) - MOST_CLASSES} more ranks differ, each in its own way"
        alignment.differences.append(Difference(LEVELS[1], [], 0, text))
    for found in classes:
        aligned = [(number, units) for number, units in by_sequence[found.signatures]]
        alignment.differences += _cache_differences(aligned)
        alignment.waits += _waits(aligned)
    alignment.waits.sort(key=lambda wait: -wait.spread_us)
    for wait in alignment.waits[:5]:
        text = f"rank {wait.slowest} compiled {_named(wait.unit)} {seconds(wait.spread_us * 1000)} longer than "
        text += f"rank {wait.fastest}; the others wait for it in their next collective"
        alignment.differences.append(Difference(LEVELS[5], [wait.slowest], 0, text, wait.unit))
    alignment.differences.sort(key=lambda difference: (LEVELS.index(difference.level), difference.position))
    return alignment


class _Graphs:
    """Signatures of compilations; equal graphs, known by their checksums, are read once."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._known: dict[str, tuple[str, str]] = {}

    def signature(self, unit: Compilation) -> Signature:
        record = graph_record(unit)
        structure, shapes = ("", "") if record is None else self._of_record(record)
        site = unit.site
        collectives = tuple(op for _, schedule in unit.collectives for op in schedule)
        return Signature(unit.function, site.place if site else "", collectives, structure, shapes)

    def _of_record(self, record: Record) -> tuple[str, str]:
        if record.is_damaged or record.md5 not in self._known:
            text = self._payloads.text(record, GRAPH_BYTES)
            found = graph_identity(text)
            if record.is_damaged:
                # A damaged text is never called equal to another.
                return f"damaged {record.file}:{record.line}", found[1]
            self._known[record.md5] = found
        return self._known[record.md5]


def graph_record(unit: Compilation) -> Record | None:
    """The first graph of the last attempt."""
    for kind in GRAPHS:
        found = [record for record in unit.records if record.kind == kind and record.has_payload]
        if found:
            return found[-1]
    return None


def graph_identity(text: str) -> tuple[str, str]:
    """A digest of what a graph computes, and one of the sizes it computes it on.

    Names of process groups are numbers that differ between ranks of the same program.
    """
    plain = fingerprint(GROUP_NAME.sub("'group'", ANNOTATION.sub("", text)))
    return plain, fingerprint("\n".join(ANNOTATION.findall(text)))


def _in_order(rank: Rank) -> list[Compilation]:
    return sorted(rank.compilations.values(), key=lambda unit: unit.started_us)


def _differences(path: RankClass, other: RankClass) -> list[Difference]:
    """What a class did otherwise than the path, each place once; fills its cells."""
    found: list[Difference] = []
    letters: dict[Signature, str] = {}
    other.cells = ["A"] * len(path.signatures)
    matcher = SequenceMatcher(None, path.signatures, other.signatures, autojunk=False)
    for tag, begin, end, own_begin, own_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        both = min(end - begin, own_end - own_begin)
        for n in range(both):
            mine = other.signatures[own_begin + n]
            other.cells[begin + n] = letters.setdefault(mine, chr(ord("B") + min(len(letters), 24)))
            found.append(_replaced(path, other, begin + n, own_begin + n))
        for n in range(begin + both, end):
            other.cells[n] = "–"
            found.append(_absent(path, other, n))
        for n in range(own_begin + both, own_end):
            other.extra += 1
            found.append(_additional(path, other, begin + both, n))
    return _as_order(path, other) or found


def _as_order(path: RankClass, other: RankClass) -> list[Difference]:
    """One difference for two sequences of the same compilations in another order."""
    if sorted(path.signatures) != sorted(other.signatures):
        return []
    at = next(n for n, pair in enumerate(zip(path.signatures, other.signatures, strict=True)) if pair[0] != pair[1])
    mine, others = other.units[at], path.units[at]
    is_hang = _collectives(path) != _collectives(other)
    text = f"{ranks_text(other.ranks)}: at position {at + 1} compiled {_named(mine)} where {ranks_text(path.ranks)} "
    text += f"compiled {_named(others)}; the same compilations in another order"
    return [Difference(LEVELS[0 if is_hang else 1], other.ranks, at + 1, text, mine, others)]


def _collectives(found: RankClass) -> list[str]:
    return [op for signature in found.signatures for op in signature.collectives]


def _replaced(path: RankClass, other: RankClass, at: int, own_at: int) -> Difference:
    mine, theirs = other.signatures[own_at], path.signatures[at]
    unit, others = other.units[own_at], path.units[at]
    who, rest = ranks_text(other.ranks), ranks_text(path.ranks)
    if (mine.function, mine.place) != (theirs.function, theirs.place):
        level = 0 if mine.collectives != theirs.collectives else 1
        text = f"{who}: at position {own_at + 1} compiled {_named(unit)} where {rest} compiled {_named(others)}"
    elif mine.collectives != theirs.collectives:
        level = 0
        n = next((n for n, (a, b) in enumerate(zip(mine.collectives, theirs.collectives, strict=False)) if a != b),
                 min(len(mine.collectives), len(theirs.collectives)))  # fmt: skip
        text = f"{who}: {_named(unit)}, position {own_at + 1}: collective {n + 1} is {_op(mine.collectives, n)} where "
        text += f"{rest} {'has' if len(path.ranks) == 1 else 'have'} {_op(theirs.collectives, n)}"
    elif mine.structure != theirs.structure:
        level = 1
        text = f"{who}: {_named(unit)}, position {own_at + 1}: another graph than {rest}"
    else:
        level = 2
        text = f"{who}: {_named(unit)}, position {own_at + 1}: other sizes than {rest}"
    return Difference(LEVELS[level], other.ranks, own_at + 1, text, unit, others)


def _absent(path: RankClass, other: RankClass, at: int) -> Difference:
    unit = path.units[at]
    text = f"{ranks_text(other.ranks)}: did not compile {_named(unit)}, position {at + 1} of {ranks_text(path.ranks)}"
    return Difference(_level_of_lone(path, at), other.ranks, at + 1, text, None, unit)


def _additional(path: RankClass, other: RankClass, at: int, own_at: int) -> Difference:
    unit = other.units[own_at]
    text = f"{ranks_text(other.ranks)}: at position {own_at + 1} compiled {_named(unit)}"
    text += " again" if unit.id.compile else ""
    text += f", {ranks_text(path.ranks)} did not"
    if unit.recompile_reasons:
        text += f" ({unit.recompile_reasons[0].splitlines()[0][:200]})"
    return Difference(_level_of_lone(other, own_at), other.ranks, own_at + 1, text, unit, None)


def _level_of_lone(found: RankClass, at: int) -> str:
    """A compilation that others lack: its collectives may hang, else a recompilation only costs time."""
    if found.signatures[at].collectives:
        return LEVELS[0]
    return LEVELS[3] if found.units[at].id.compile else LEVELS[1]


def _cache_differences(aligned: list[tuple[int, list[Compilation]]]) -> list[Difference]:
    found = []
    for column in zip(*(units for _, units in aligned), strict=True):
        states: dict[str, list[int]] = defaultdict(list)
        for (rank, _), unit in zip(aligned, column, strict=True):
            states[", ".join(f"{event.cache} {event.state}" for event in unit.caches)].append(rank)
        if len(states) > 1:
            sides = sorted(states.items(), key=lambda side: (-len(side[1]), side[1]))
            shown = "; ".join(f"{ranks_text(ranks)}: {state or 'not asked'}" for state, ranks in sides[:4])
            text = f"caches for {_named(column[0])} differ: {shown}"
            ranks = sorted(rank for _, side in sides[1:] for rank in side)
            found.append(Difference(LEVELS[4], ranks, 0, text, column[0]))
    return found


def _waits(aligned: list[tuple[int, list[Compilation]]]) -> list[Wait]:
    found = []
    for column in zip(*(units for _, units in aligned), strict=True):
        times = [(unit.duration_us or 0.0, rank) for (rank, _), unit in zip(aligned, column, strict=True)]
        (least, fastest), (most, slowest) = min(times), max(times)
        if most - least > SLOW_US and most > least * SLOW_FACTOR:
            unit = next(u for (rank, _), u in zip(aligned, column, strict=True) if rank == slowest)
            found.append(Wait(unit, slowest, fastest, most - least))
    return found


def _op(collectives: tuple[str, ...], n: int) -> str:
    return collectives[n].removeprefix("torch.ops._c10d_functional.") if n < len(collectives) else "none"


def _named(unit: Compilation) -> str:
    return f"{unit.function or 'a function'}{place(unit.site)}"
