"""Which caches hit and missed, and what differs in the key of a miss."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tracewise.model.entities import CacheEvent, Compilation, Run

STATES = ("hit", "miss", "bypass", "disabled")
COMPONENT = re.compile(r"^\[(?P<hash>\w+)\] (?P<name>[^:]{1,300}): ?(?P<value>.*)$", re.DOTALL)


@dataclass(slots=True)
class CacheSummary:
    """One cache over a run."""

    cache: str
    states: Counter[str]
    saved_us: float


@dataclass(slots=True)
class KeyDifference:
    """A component of the key that two looks do not share; empty text where one lacks it."""

    name: str
    before: str
    after: str


def summarise_caches(run: Run) -> list[CacheSummary]:
    """Hits, misses and saved time of each cache."""
    found: dict[str, CacheSummary] = {}
    for unit in run.compilations:
        for event in unit.caches:
            summary = found.setdefault(event.cache, CacheSummary(event.cache, Counter(), 0.0))
            summary.states[event.state] += 1
            summary.saved_us += event.saved_us or 0.0
    return sorted(found.values(), key=lambda summary: summary.cache)


def comparable_misses(run: Run) -> list[tuple[Compilation, CacheEvent, Compilation, CacheEvent]]:
    """Each miss of a recompilation with the look before it: same frame, same cache, same place in the order."""
    pairs = []
    by_frame: dict[Any, tuple[Compilation, list[CacheEvent]]] = {}
    for unit in run.compilations:
        if unit.id.frame is None:
            continue
        key = (unit.process, unit.id._replace(compile=None))
        if key in by_frame:
            earlier, events = by_frame[key]
            for before, event in _aligned(events, unit.caches):
                if event.state == "miss" and event.key != before.key:
                    pairs.append((unit, event, earlier, before))
        by_frame[key] = (unit, unit.caches)
    return pairs


def _aligned(before: list[CacheEvent], after: list[CacheEvent]) -> list[tuple[CacheEvent, CacheEvent]]:
    pairs = []
    for cache in {event.cache for event in after}:
        of_before = [event for event in before if event.cache == cache]
        of_after = [event for event in after if event.cache == cache]
        pairs += list(zip(of_before, of_after, strict=False))
    return pairs


def key_components(payload: Any) -> dict[str, tuple[str, str]]:
    """Name to hash and value of each component of a cache key."""
    components = payload.get("components") if isinstance(payload, dict) else None
    found = {}
    for text in components if isinstance(components, list) else []:
        if isinstance(text, str) and (match := COMPONENT.match(text)):
            found[match["name"]] = (match["hash"], match["value"])
    return found


def key_differences(before: Any, after: Any) -> list[KeyDifference]:
    """The components of two cache payloads that differ, in the order of the second."""
    old, new = key_components(before), key_components(after)
    names = [*new, *(name for name in old if name not in new)]
    nothing = ("", "")
    return [
        KeyDifference(name, old.get(name, nothing)[1], new.get(name, nothing)[1])
        for name in names
        if old.get(name, nothing)[0] != new.get(name, nothing)[0]
    ]
