"""What a checked run was like, for people who read it beside its source: types per line, modules, collectives.

Plain values without torch. ``check`` makes one only when asked (``--annotate``, ``--html``, editors), see
``checker/observation/run_record.py``; it is the field ``record`` of a ``RunResult``, and travels with it as JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .source_location import SourceLocation

_PARTS = re.compile(r"(?P<dtype>\w+)\[(?P<dims>[^\]]*)\](?P<rest>.*)", re.DOTALL)
_COMMA = re.compile(r", ")


@dataclass(frozen=True, slots=True)
class NamedTypes:
    """The types that a value had under one name: ``types`` has each with the number of times, the first one first.

    ``location``  the span of the name in the source; None for what has none, as inputs of modules.
    """

    name: str
    types: tuple[tuple[str, int], ...]
    location: SourceLocation | None = None

    @property
    def count(self) -> int:
        """How many times the name was bound."""
        return sum(count for _, count in self.types)

    @property
    def text(self) -> str:
        """All types as one: dims that differ read ``*``; of two that differ otherwise both, of more the first.

        Example:
            >>> NamedTypes("h", (("f32[4, 8] {tp: R}", 1), ("f32[2, 8] {tp: R}", 2))).text
            'f32[*, 8] {tp: R}'
            >>> NamedTypes("h", (("f32[4] {tp: R}", 1), ("f32[4] {tp: P}", 2))).text
            'f32[4] {tp: R} or f32[4] {tp: P}'
            >>> NamedTypes("h", (("f32[4] {tp: R}", 1), ("f32[4] {tp: P}", 2), ("f32[4] {}", 2))).text
            'f32[4] {tp: R} (and 2 other types)'
        """
        groups = merged_types([text for text, _ in self.types])
        others = len(groups) - 1
        if others == 1 and all(map(_PARTS.fullmatch, groups)):
            return " or ".join(groups)
        return groups[0] + (f" (and {others} other type{'' if others == 1 else 's'})" if others else "")


def merged_types(types: Sequence[str]) -> list[str]:
    """Types that differ only in the sizes of dims as one, with ``*`` for those sizes; in the order of the first."""
    groups: dict[object, list[str]] = {}
    for text in types:
        found = _PARTS.fullmatch(text)
        key = text if found is None else (found["dtype"], _marks(found["dims"]), found["rest"])
        groups.setdefault(key, []).append(text)
    return [_merged(group) for group in groups.values()]


def _marks(dims: str) -> tuple[str, ...]:
    """What is said of each dim besides its size: ``4@dp, 8`` has ``("@dp", "")``."""
    return tuple(dim.lstrip("0123456789*") for dim in _COMMA.split(dims))


def _merged(group: list[str]) -> str:
    if len(group) == 1:
        return group[0]
    found = [match for text in group if (match := _PARTS.fullmatch(text)) is not None]
    sizes = zip(*(_COMMA.split(match["dims"]) for match in found), strict=True)
    dims = [same[0] if len(set(same)) == 1 else f"*{same[0].lstrip('0123456789*')}" for same in sizes]
    return f"{found[0]['dtype']}[{', '.join(dims)}]{found[0]['rest']}"


@dataclass(frozen=True, slots=True)
class ModuleTypes:
    """A module that was called: its ``path`` from the outermost one, and the types at its boundary.

    ``kind``        the name of its class.
    ``parameters``  its own, not those of the modules in it.
    ``count``       how many times it was called.
    """

    path: str
    kind: str
    inputs: tuple[NamedTypes, ...] = ()
    outputs: tuple[NamedTypes, ...] = ()
    parameters: tuple[NamedTypes, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class CostedCall:
    """A collective or message that one rank issued, with what the ring algorithms of ``planner/cost.py`` make of it.

    ``axis``     the mesh axis, or the name of the group; ``ranks`` its members. Of a message the axis that joins its
                 two ranks, and these.
    ``typed``    the first tensor handed in, as it is printed.
    ``op``       what is reduced to, as ``sum``; empty where nothing is.
    ``bytes``    that this rank receives; ``seconds`` over the link that ``links`` of the record names for the axis.
    """

    kind: str
    axis: str
    ranks: tuple[int, ...]
    rank: int
    typed: str = ""
    op: str = ""
    transition: str = ""
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    location: SourceLocation | None = None


@dataclass(frozen=True, slots=True)
class AssumedLink:
    """What was assumed to connect the ranks of ``axis``: estimates of time rest on it."""

    axis: str
    latency_s: float
    bytes_per_s: float
    said: str = ""


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """An axis of a mesh with the layout of its ranks: ``sizes`` with the ``strides`` between them."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MadeMesh:
    """A mesh that the program has made: its ``axes`` in its own order, and those that are several of them as one."""

    axes: tuple[NamedLayout, ...]
    flattened: tuple[NamedLayout, ...] = ()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """``values`` by file and line, ``modules`` as called first, ``collectives`` in the order of the program.

    ``meshes``  that the program has made or made current, parts of others left out.
    """

    values: tuple[NamedTypes, ...] = ()
    modules: tuple[ModuleTypes, ...] = ()
    collectives: tuple[CostedCall, ...] = ()
    links: tuple[AssumedLink, ...] = ()
    meshes: tuple[MadeMesh, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that have values, in the order in which the program came to them."""
        return tuple(dict.fromkeys(one.location.file for one in self.values if one.location is not None))

    def by_line(self, file: str) -> dict[int, list[NamedTypes]]:
        """The values of ``file`` by the line of their name, in the order of columns."""
        lines: dict[int, list[NamedTypes]] = {}
        for one in self.values:
            if one.location is not None and one.location.file == file:
                lines.setdefault(one.location.line, []).append(one)
        return {
            line: sorted(lines[line], key=lambda one: one.location.column or 0 if one.location else 0)
            for line in sorted(lines)
        }


def counted_types(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    """The types of a counter in the order in which they came."""
    return tuple(counts.items())


def joined(records: Iterable[RunRecord]) -> RunRecord:
    """The record of several ranks: values and modules of the first that has them, collectives and meshes of all."""
    kept = list(records)
    values: dict[tuple[str, SourceLocation | None], NamedTypes] = {}
    modules: dict[str, ModuleTypes] = {}
    links: dict[str, AssumedLink] = {}
    for record in kept:
        for value in record.values:
            values.setdefault((value.name, value.location), value)
        for module in record.modules:
            modules.setdefault(module.path, module)
        for link in record.links:
            links.setdefault(link.axis, link)
    calls = tuple(call for record in kept for call in record.collectives)
    meshes = tuple(dict.fromkeys(mesh for record in kept for mesh in record.meshes))
    return RunRecord(tuple(values.values()), tuple(modules.values()), calls, tuple(links.values()), meshes)
