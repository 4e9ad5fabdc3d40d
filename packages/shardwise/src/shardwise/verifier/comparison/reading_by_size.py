"""Data that is cut for the ranks, of which all of them read the same part.

two ranks    rows 0, 2, 4, ... on both       one rank    rows 0, 1, 2, ...

Where what is read follows from how many ranks there are, a rank is meant to read its own part. Ranks that read the
whole may be meant to; so may ranks that read other data in every run, or draw numbers that one rank draws otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from shardwise.interop.running.recording import IN_EVALUATION, Key, Record

from ..distance.numbers import Against, Numbers, Parting, ValueDisagreement
from ..records.batches import is_shared
from ..records.record import RankRun

_SAID = (
    "is the same on every rank, and other data than one rank reads: what is read follows from how many ranks there "
    "are, and not from which this is"
)


def with_reading_by_size(
    numbers: Numbers, ranks: Sequence[RankRun], before: Sequence[RankRun], parting: Parting | None
) -> Numbers:
    """``numbers`` of runs of which one rank was given what the ranks draw, with such data in front of what is wrong.

    ``before``   the same program's runs, ranks first, where one rank read by itself.
    ``parting``  where these parted.
    """
    if parting is None or parting.key.kind != "input" or not ranks[0].data_parallel:
        return numbers
    if not is_shared([run.batches for run in ranks]):
        return numbers
    first, *others, there = map(training_inputs, (*ranks, *before))
    if not all(first.keys() == other.keys() and _are_same(first, other) for other in others):
        return numbers
    for key, value in first.items():
        expected = there.get(key)
        if value is None or expected is None or value.numel() < 2 or value.shape[1:] != expected.shape[1:]:
            continue
        if value.shape == expected.shape and torch.equal(value, expected):
            continue
        having = tuple(range(len(ranks)))
        wrong = ValueDisagreement(key, _claim(ranks[0], key), Against.ALONE, 0, having, (), (), None, _SAID)
        return replace(numbers, disagreements=(wrong, *numbers.disagreements))
    return numbers


def training_inputs(run: RankRun) -> dict[Key, torch.Tensor | None]:
    """What modules are called with where gradients are wanted."""
    inputs = (one for one in run.entries if isinstance(one, Record) and one.key.kind == "input")
    return {one.key: one.value for one in inputs if not one.key.name.endswith(IN_EVALUATION)}


def is_same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """The same values, or none on both sides."""
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def _are_same(one: Mapping[Key, torch.Tensor | None], other: Mapping[Key, torch.Tensor | None]) -> bool:
    return all(is_same(value, other[key]) for key, value in one.items())


def _claim(run: RankRun, key: Key) -> str:
    entries = (entry for entry in run.entries if isinstance(entry, Record) and entry.key == key)
    return next(entries).claim
