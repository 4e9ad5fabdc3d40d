"""The modules of a run as a tree, in which siblings that are alike (the layers of a stack) are one entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardwise.diagnostics.run_record import ModuleTypes

_NUMBERED = re.compile(r"\d+")


@dataclass
class ModuleEntry:
    """A module in its place, or ``alike`` of them that differ in their number only.

    ``name``     its last part; ``0 to 125`` for several. ``path`` that of the first.
    ``module``   None for one that was not called itself, as a ``ModuleList``.
    """

    name: str
    path: str
    module: ModuleTypes | None = None
    children: list[ModuleEntry] = field(default_factory=list)
    alike: int = 1

    @property
    def signature(self) -> tuple[object, ...]:
        """What makes two modules alike: everything but their names."""
        one = self.module
        own = () if one is None else (one.kind, one.inputs, one.outputs, one.parameters, one.count)
        return (*own, tuple((child.name, child.alike, child.signature) for child in self.children))


def module_tree(modules: Iterable[ModuleTypes]) -> list[ModuleEntry]:
    """The outermost modules, with those inside them."""
    top = ModuleEntry("", "")
    known = {"": top}
    for module in modules:
        _entry(module.path, known).module = module
    return [_folded(entry) for entry in top.children]


def _entry(path: str, known: dict[str, ModuleEntry]) -> ModuleEntry:
    if path not in known:
        parent, _, name = path.rpartition(".")
        known[path] = ModuleEntry(name, path)
        _entry(parent, known).children.append(known[path])
    return known[path]


def _folded(entry: ModuleEntry) -> ModuleEntry:
    """The entry with stretches of numbered children that are alike made one."""
    children: list[ModuleEntry] = []
    stretch: list[ModuleEntry] = []
    for child in map(_folded, entry.children):
        numbered = _NUMBERED.fullmatch(child.name) is not None
        if not (stretch and numbered and child.signature == stretch[0].signature):
            children += _as_one(stretch)
            stretch = []
        if numbered:
            stretch.append(child)
        else:
            children.append(child)
    entry.children = children + _as_one(stretch)
    return entry


def _as_one(stretch: Sequence[ModuleEntry]) -> list[ModuleEntry]:
    if len(stretch) < 2:
        return list(stretch)
    first = stretch[0]
    name = f"{first.name} to {stretch[-1].name}"
    return [ModuleEntry(name, first.path, first.module, first.children, len(stretch))]
