"""Samples in a list, as a detector is given a dict of boxes for each image: do the ranks have those of one rank?

one rank    targets.0.boxes, targets.1.boxes, targets.2.boxes, targets.3.boxes       samples 0 to 3
rank 1      targets.0.boxes, targets.1.boxes                                          samples 2 and 3

Each rank counts its own from zero, so no tensor of a place is a part of what one rank has there; all of them are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shardwise.interop.running.recording import Draw, Key, Record
from shardwise.interop.tensors.bits import digest_of

Entries = Mapping[Key, Record | Draw]


def place_in_lists(key: Key) -> tuple[str, int] | None:
    """The name of an input without its numbers in lists, and in which call it is; None if it is in no list."""
    path, of, module = key.name.partition(" of ")
    first, *rest = path.split(".")
    if key.kind != "input" or not of or not any(part.isdigit() for part in rest):
        return None
    return ".".join([first, *("*" if part.isdigit() else part for part in rest)]) + of + module, key.nth


class ListedSamples:
    """Which lists hold, on all ranks together, the samples of one rank."""

    def __init__(self, ranks: Sequence[Entries], alone: Entries) -> None:
        self._ranks, self._alone = ranks, alone
        self._known: dict[tuple[str, int], bool] = {}

    def explain(self, key: Key) -> bool:
        """Does the list, of which ``key`` is an element, hold the samples of one rank, each equally often?"""
        place = place_in_lists(key)
        if place is None:
            return False
        if place not in self._known:
            whole = Counter(_samples(self._alone, place))
            held = Counter(sample for run in self._ranks for sample in _samples(run, place))
            times = {held[sample] / count for sample, count in whole.items()}
            self._known[place] = bool(whole) and held.keys() == whole.keys() and len(times) == 1
        return self._known[place]


def _samples(run: Entries, place: tuple[str, int]) -> list[bytes]:
    return [
        digest_of(record.value)
        for key, record in run.items()
        if isinstance(record, Record) and record.value is not None and place_in_lists(key) == place
    ]
