"""Which compilation of one run is which of the other: by place and order, then by graph, then by name and order."""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Callable, Hashable
from pathlib import PurePath

from tracewise.find.graph_text import fingerprint
from tracewise.model.entities import Compilation, Record, Run
from tracewise.model.payloads import Payloads

GRAPHS = ("dynamo_output_graph", "compiled_autograd_graph", "aot_joint_graph", "aot_inference_graph")
GRAPH_BYTES = 4 << 20
Pair = tuple[Compilation, Compilation]


class Side:
    """One run with its texts, and what it is compared by."""

    def __init__(self, run: Run, payloads: Payloads) -> None:
        self.run = run
        self.payloads = payloads
        self._fingerprints: dict[str, str] = {}

    def fingerprint(self, record: Record) -> str:
        """Equal for texts that differ only in names and addresses; a damaged text is equal to none."""
        if record.is_damaged:
            return f"damaged in {self.run.folder}, {record.file}:{record.line}"
        if record.md5 not in self._fingerprints:
            self._fingerprints[record.md5] = fingerprint(self.payloads.text(record, GRAPH_BYTES))
        return self._fingerprints[record.md5]

    def graph(self, unit: Compilation) -> Record | None:
        """The graph that the last attempt made."""
        for kind in GRAPHS:
            found = texts_of(unit, kind)
            if found:
                return found[-1]
        return None


def texts_of(unit: Compilation, title: str) -> list[Record]:
    """The records of one title that have a text, in their order."""
    return [record for record in unit.records if record.title == title and record.has_payload]


def match_units(before: Side, after: Side) -> tuple[list[Pair], list[Compilation], list[Compilation]]:
    """Pairs in the order of the second run; what only the first has; what only the second has."""

    def by_place(side: Side, unit: Compilation) -> Hashable:
        site = unit.site
        return _rank(side, unit), unit.function, PurePath(site.file).name if site else "", site.line if site else 0

    def by_graph(side: Side, unit: Compilation) -> Hashable:
        graph = side.graph(unit)
        return None if graph is None else (_rank(side, unit), side.fingerprint(graph))

    def by_name(side: Side, unit: Compilation) -> Hashable:
        # A line that moved is the same function, which the file's name still tells.
        return (_rank(side, unit), unit.function, os.path.basename(unit.site.file if unit.site else ""))

    gone, new = list(before.run.compilations), list(after.run.compilations)
    pairs: list[Pair] = []
    for key in (by_place, by_graph, by_name):
        pairs += _take_pairs(gone, new, before, after, key)
    order = {id(unit): number for number, unit in enumerate(after.run.compilations)}
    pairs.sort(key=lambda pair: order[id(pair[1])])
    return pairs, gone, new


def _rank(side: Side, unit: Compilation) -> int | None:
    return unit.rank if side.run.is_distributed else None


def _take_pairs(
    gone: list[Compilation],
    new: list[Compilation],
    before: Side,
    after: Side,
    key: Callable[[Side, Compilation], Hashable],
) -> list[Pair]:
    """Pairs off units of equal keys in their order, and takes them out of both lists."""
    waiting: dict[Hashable, list[Compilation]] = defaultdict(list)
    for unit in gone:
        waiting[key(before, unit)].append(unit)
    pairs = []
    for unit in list(new):
        own = key(after, unit)
        if own is not None and waiting.get(own):
            other = waiting[own].pop(0)
            pairs.append((other, unit))
            _remove(gone, other)
            _remove(new, unit)
    return pairs


def _remove(units: list[Compilation], unit: Compilation) -> None:
    units.pop(next(n for n, other in enumerate(units) if other is unit))
