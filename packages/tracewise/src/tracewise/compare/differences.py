"""What changed from one run to the next, as values: what text, page and JSON of ``tracewise diff`` show.

A run against itself has no difference. Times differ if by more than 5 % and 50 ms.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tracewise.compare.matching import Pair, Side, match_units, texts_of
from tracewise.find.answers import Answers, find_answers, problem_json
from tracewise.find.caches import key_differences
from tracewise.find.problems import Problem
from tracewise.model.entities import CacheEvent, Compilation, Run
from tracewise.model.payloads import Payloads
from tracewise.read.grammar import parse_json

SHARE = 0.05
LEAST_US = 50_000
DIFF_LINES = 200
DIFF_BYTES = 1 << 20
DIFFS_KEPT = 50
CODE = "inductor_output_code"


@dataclass(frozen=True, slots=True)
class TimeChange:
    """Compile time of a function or a phase in both runs; 0 where one has none."""

    what: str
    name: str
    before_us: float
    after_us: float

    @property
    def change_us(self) -> float:
        return self.after_us - self.before_us


@dataclass(frozen=True, slots=True)
class TextChange:
    """A graph or code that is another one; ``lines`` is a unified diff, cut where it gets long."""

    title: str
    before: Compilation
    after: Compilation
    lines: list[str]


@dataclass(frozen=True, slots=True)
class CacheChange:
    """A cache that gives another answer; ``components`` of the key that differ."""

    unit: Compilation
    cache: str
    before: str
    after: str
    components: list[str]


@dataclass(frozen=True, slots=True)
class Recompilation:
    """Recompilations of one function that the first run did not have."""

    function: str
    place: str
    before: int
    after: int
    guards: list[str]


@dataclass
class RunDiff:
    """All differences of two runs."""

    before: Answers
    after: Answers
    pairs: list[Pair] = field(default_factory=list)
    gone: list[Compilation] = field(default_factory=list)
    new: list[Compilation] = field(default_factory=list)
    new_problems: list[Problem] = field(default_factory=list)
    gone_problems: list[Problem] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    times: list[TimeChange] = field(default_factory=list)
    texts: list[TextChange] = field(default_factory=list)
    caches: list[CacheChange] = field(default_factory=list)
    configs: list[tuple[str, str, str]] = field(default_factory=list)
    facts: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.gone or self.new or self.new_problems or self.gone_problems or self.recompilations
                    or self.times or self.texts or self.caches or self.configs or self.facts)  # fmt: skip

    @property
    def slower(self) -> float:
        """By which share the second run compiles longer; 0 if it does not."""
        before, after = self.before.compile_us, self.after.compile_us
        return max(after / before - 1.0, 0.0) if before else float(after > 0)

    def as_json(self) -> dict[str, Any]:
        """The differences for machines."""
        return {
            "format": 1,
            "before": self.before.run.folder,
            "after": self.after.run.folder,
            "empty": self.is_empty,
            "clean": self.before.run.health.is_clean and self.after.run.health.is_clean,
            "compile_us": [self.before.compile_us, self.after.compile_us],
            "new_problems": [problem_json(problem) for problem in self.new_problems],
            "gone_problems": [problem_json(problem) for problem in self.gone_problems],
            "new_compilations": [_unit_json(unit) for unit in self.new],
            "gone_compilations": [_unit_json(unit) for unit in self.gone],
            "recompilations": [
                {"function": r.function, "place": r.place, "before": r.before, "after": r.after, "guards": r.guards}
                for r in self.recompilations
            ],
            "times": [
                {"what": t.what, "name": t.name, "before_us": t.before_us, "after_us": t.after_us} for t in self.times
            ],
            "texts": [
                {"title": t.title, "before": str(t.before.id), "after": str(t.after.id), "rank": t.after.rank,
                 "diff": t.lines} for t in self.texts
            ],
            "caches": [
                {"id": str(c.unit.id), "rank": c.unit.rank, "cache": c.cache, "before": c.before, "after": c.after,
                 "components": c.components} for c in self.caches
            ],
            "configs": [{"name": name, "before": old, "after": new} for name, old, new in self.configs],
            "facts": [{"name": name, "before": old, "after": new} for name, old, new in self.facts],
        }  # fmt: skip


def compare_runs(before: Run, after: Run) -> RunDiff:
    """Everything that differs."""
    with Payloads(before) as old_payloads, Payloads(after) as new_payloads:
        old, new = Side(before, old_payloads), Side(after, new_payloads)
        diff = RunDiff(find_answers(before), find_answers(after))
        diff.pairs, diff.gone, diff.new = match_units(old, new)
        known = {problem.id for problem in diff.before.problems}
        found = {problem.id for problem in diff.after.problems}
        diff.new_problems = [problem for problem in diff.after.problems if problem.id not in known]
        diff.gone_problems = [problem for problem in diff.before.problems if problem.id not in found]
        diff.recompilations = _recompilations(diff.before, diff.after)
        diff.times = list(_times(diff.before, diff.after))
        diff.texts = list(_texts(old, new, diff.pairs))
        diff.caches = list(_caches(old, new, diff.pairs))
        diff.configs = _configs(before, after)
        diff.facts = _facts(before, after)
    return diff


def _recompilations(before: Answers, after: Answers) -> list[Recompilation]:
    """Functions that are compiled again more often than before."""
    counts: Counter[tuple[str, str]] = Counter()
    for chain in before.chains:
        counts[chain.function, chain.site.place if chain.site else ""] += len(chain.links)
    chains: dict[tuple[str, str], list[str]] = defaultdict(list)
    for chain in after.chains:
        chains[chain.function, chain.site.place if chain.site else ""] += [link.guard for link in chain.links]
    return [
        Recompilation(*key, counts[key], len(guards), list(dict.fromkeys(guards))[:10])
        for key, guards in chains.items()
        if len(guards) > counts[key]
    ]


def _times(before: Answers, after: Answers) -> Iterator[TimeChange]:
    """By phase, then by function, each with the largest change first."""
    phases = [("phase", name, us, after.costs.by_phase.get(name, 0.0)) for name, us in before.costs.by_phase.items()]
    old, new = _by_function(before), _by_function(after)
    functions = [("function", name, old.get(name, 0.0), new.get(name, 0.0)) for name in dict.fromkeys([*old, *new])]
    for rows in (phases, functions):
        changes = (TimeChange(*row) for row in rows)
        yield from sorted(filter(_is_change, changes), key=lambda change: -abs(change.change_us))


def _is_change(change: TimeChange) -> bool:
    return abs(change.change_us) > max(LEAST_US, SHARE * change.before_us)


def _by_function(answers: Answers) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for unit in answers.run.compilations:
        found[unit.function or "(unnamed)"] += unit.duration_us or 0.0
    return found


def _texts(before: Side, after: Side, pairs: Iterable[Pair]) -> Iterator[TextChange]:
    """Graphs and codes that are not the same but for names."""
    count = 0
    for old, new in pairs:
        graphs = [(before.graph(old), after.graph(new))]
        codes = list(zip(texts_of(old, CODE), texts_of(new, CODE), strict=False))
        for title, records in (("graph", graphs), (CODE, codes)):
            for one, two in records:
                if one is None or two is None or one.md5 == two.md5:
                    continue
                if before.fingerprint(one) == after.fingerprint(two):
                    continue
                count += 1
                lines: list[str] = []
                if count <= DIFFS_KEPT:
                    texts = before.payloads.text(one, DIFF_BYTES), after.payloads.text(two, DIFF_BYTES)
                    lines = _diff_lines(*texts)
                yield TextChange(title, old, new, lines)


def _diff_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=2)
    kept: list[str] = []
    for line in lines:
        if len(kept) == DIFF_LINES:
            kept.append("... more lines differ")
            break
        kept.append(line[:1000])
    return kept


def _caches(before: Side, after: Side, pairs: Iterable[Pair]) -> Iterator[CacheChange]:
    """Looks that were hits before and are none now, or the other way round."""
    for old, new in pairs:
        for cache in dict.fromkeys(event.cache for event in new.caches):
            events = zip(_of_cache(old, cache), _of_cache(new, cache), strict=False)
            for one, two in events:
                if one.state != two.state:
                    components = [part.name for part in _key_differences(before, after, one, two)]
                    yield CacheChange(new, cache, one.state, two.state, components)


def _of_cache(unit: Compilation, cache: str) -> list[CacheEvent]:
    return [event for event in unit.caches if event.cache == cache]


def _key_differences(before: Side, after: Side, one: CacheEvent, two: CacheEvent) -> list[Any]:
    try:
        old = parse_json(before.payloads.read(one.record))[0]
        new = parse_json(after.payloads.read(two.record))[0]
    except ValueError:
        return []
    return key_differences(old, new)


def _configs(before: Run, after: Run) -> list[tuple[str, str, str]]:
    """Values of the first compilation's configs that differ."""
    found = []
    old, new = _config_values(before), _config_values(after)
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            found.append((name, _shown(old.get(name)), _shown(new.get(name))))
    return found


def _config_values(run: Run) -> dict[str, Any]:
    unit = run.first_with_configs
    values: dict[str, Any] = {}
    for config, digest in (unit.configs if unit else {}).items():
        text = run.configs.get(digest, "")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if isinstance(value, dict):
            values |= {f"{config}.{name}": item for name, item in value.items()}
        else:
            values[config] = value
    return values


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)[:300]


def _facts(before: Run, after: Run) -> list[tuple[str, str, str]]:
    rows = [
        ("torch", before.torch_version, after.torch_version),
        ("commit", before.torch_commit, after.torch_commit),
        ("ranks", _ranks(before), _ranks(after)),
    ]
    for name in ("python_version", "triton_version", "cuda_version"):
        rows.append((name.replace("_", " "), _metric(before, name), _metric(after, name)))
    return [row for row in rows if row[1] != row[2]]


def _ranks(run: Run) -> str:
    return str(len(run.ranks)) if run.is_distributed else "1"


def _metric(run: Run, name: str) -> str:
    return next((str(unit.metrics[name]) for unit in run.compilations if unit.metrics.get(name)), "")


def _unit_json(unit: Compilation) -> dict[str, Any]:
    site = unit.site
    return {"id": str(unit.id), "rank": unit.rank, "function": unit.function, "place": site.place if site else None}
