"""Why frames were compiled again: chains of compilations, the guard that failed at each, what to change.

[0/0] -> [0/1]   n == 1                                         int argument: pass it as a tensor
[0/1] -> [0/2]   tensor 'x' size mismatch at index 0. expected 5, actual 6      mark_dynamic(x, 0)
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from tracewise.model.entities import Compilation, Frame, Run
from tracewise.model.ids import CompileId

DEFAULT_LIMIT = 8
ENTRY = re.compile(r"^\s*(?:!?\d+/)?\d+/\d+(?:_\d+)?:\s*")
SIZE = re.compile(
    r"tensor '(?P<name>[^']*)' (?:size|stride) mismatch at index (?P<dim>\d+)\. "
    r"expected (?P<old>\S+), actual (?P<new>\S+)"
)
EQUALS = re.compile(r"^(?P<name>.+?) == (?P<old>\S.*)$")
VALUES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Remedy:
    """A class of guards: what fails, and what to do about it."""

    name: str
    pattern: re.Pattern[str]
    advice: str


def _remedy(name: str, pattern: str, advice: str) -> Remedy:
    return Remedy(name, re.compile(pattern), advice)


# The first that fits counts.
REMEDIES = (
    _remedy(
        "limit",
        r"recompile_limit|cache_size_limit",
        "The frame runs uncompiled from here on; mend the guards above.",
    ),
    _remedy(
        "size",
        r"size mismatch|\.size\(\)|stride mismatch|\.stride\(\)|\bs\d+\b",
        "Sizes vary: torch._dynamo.mark_dynamic(tensor, dim), or torch.compile(..., dynamic=True).",
    ),
    _remedy(
        "ndim",
        r"rank mismatch|\.ndim\b|\.dim\(\)",
        "The number of dims varies: give every kind of input a function of its own.",
    ),
    _remedy("dtype", r"dtype mismatch|\.dtype\b", "The dtype varies: cast before the compiled function."),
    _remedy(
        "requires_grad",
        r"requires_grad",
        "Some calls need gradients and some do not: separate them, or detach inputs.",
    ),
    _remedy(
        "global state",
        r"GLOBAL_STATE|___check_global_state|grad_mode|is_grad_enabled|is_inference",
        "Global state (grad mode, autocast, threads) differs between calls: set it once around all of them.",
    ),
    _remedy(
        "identity",
        r"___check_obj_id|___check_type_id|\bis\b|id\(",
        "Another object or type is passed each time: create it once and keep it.",
    ),
    _remedy("length", r"\blen\(", "The length of a container varies: pad it, or pass a tensor."),
    _remedy(
        "value",
        r" == ",
        "A Python number or text is part of the compiled code: pass it as a tensor, or mark it dynamic.",
    ),
    _remedy("other", r"", "Keep what the guard names the same between calls."),
)


@dataclass(slots=True)
class Link:
    """One recompilation: the guard that failed and what changed, as far as its text tells."""

    before: CompileId
    unit: Compilation
    guard: str
    code: str
    subject: str
    old: str
    new: str
    remedy: Remedy


@dataclass(slots=True)
class Chain:
    """The compilations of one frame of one process."""

    process: str
    function: str
    site: Frame | None
    units: list[Compilation]
    links: list[Link] = field(default_factory=list)
    limit: int = DEFAULT_LIMIT

    @property
    def hits_limit(self) -> bool:
        return len(self.units) > self.limit or any(
            "recompile_limit" in str(unit.metrics.get("fail_reason", "")) for unit in self.units
        )

    @property
    def cost_us(self) -> float:
        """Compile time of all compilations but the first."""
        return sum(unit.duration_us or 0.0 for unit in self.units[1:])

    @property
    def guards(self) -> list[tuple[str, int]]:
        """What failed, with how often."""
        return Counter(link.subject or link.guard for link in self.links).most_common()

    @property
    def changes(self) -> list[tuple[str, list[str]]]:
        """Each value that changed, with the values it took."""
        found: dict[str, list[str]] = {}
        for link in self.links:
            if link.subject and link.old:
                values = found.setdefault(link.subject, [link.old])
                if link.old not in values:
                    values.append(link.old)
                if link.new and link.new not in values:
                    values.append(link.new)
        return [(name, values[:VALUES_SHOWN]) for name, values in found.items()]

    @property
    def advice(self) -> list[str]:
        """What to do, most frequent first, each once."""
        return [advice for advice, _ in Counter(link.remedy.advice for link in self.links).most_common()]


def find_chains(run: Run) -> list[Chain]:
    """Frames that were compiled more than once, dearest first."""
    chains: list[Chain] = []
    for rank in run.ranks:
        frames: dict[CompileId, list[Compilation]] = {}
        for unit in rank.compilations.values():
            if unit.id.frame is not None and unit.id.compile is not None:
                frames.setdefault(unit.id._replace(compile=None), []).append(unit)
        for units in frames.values():
            units.sort(key=lambda unit: unit.id.compile or 0)
            if len(units) > 1 or units[0].recompile_reasons:
                chains.append(_chain(rank.label, units))
    return sorted(chains, key=lambda chain: -chain.cost_us)


def _chain(process: str, units: list[Compilation]) -> Chain:
    named = next((unit for unit in units if unit.function), units[0])
    limit = next((unit.recompile_limit for unit in units if unit.recompile_limit), DEFAULT_LIMIT)
    chain = Chain(process, named.function, named.site, units, limit=limit)
    for before, unit in pairwise(units):
        chain.links.append(make_link(before.id, unit))
    return chain


def make_link(before: CompileId, unit: Compilation) -> Link:
    """The recompilation ``unit``, read from its newest reason."""
    reason = next(iter(unit.recompile_reasons), "") or unit.metrics.get("recompile_reason") or ""
    first = str(reason).splitlines()[0] if str(reason).strip() else ""
    guard, _, code = ENTRY.sub("", first).partition("  #")
    guard = guard.strip()
    subject, old, new = _change(guard)
    remedy = next(remedy for remedy in REMEDIES if remedy.pattern.search(guard))
    return Link(before, unit, guard or "no reason given", code.strip(" #"), subject, old, new, remedy)


def _change(guard: str) -> tuple[str, str, str]:
    """What changed, from which value, to which."""
    if match := SIZE.search(guard):
        return f"{match['name']}.size()[{match['dim']}]", match["old"].rstrip(",."), match["new"]
    if match := EQUALS.match(guard):
        return match["name"], match["old"], ""
    return "", "", ""
