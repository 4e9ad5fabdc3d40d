"""Is a loss wrong because every rank divides by its own number of targets? Then their weighted mean is right.

rank 0: sum 74 over 37 targets, 2.0    rank 1: sum 129 over 43, 3.0    mean 2.5    one rank: 203 over 80, 2.5375
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardwise.interop.running.recording import Key, Record

from ..distance.numbers import Against, Numbers
from ..records.record import RankRun

_SHARE = 0.02
"""The weighted mean is the loss of one rank if it is so much nearer to it than the plain one."""
_SAME = 1e-4
"""How far both may be apart, relative to each other, to be one."""


def own_counts_note(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun) -> tuple[str, str] | None:
    """What there is to say of the first loss that is wrong, if that is why, and what else; None otherwise."""
    losses = (one.key for one in numbers.disagreements if one.key.kind == "loss" and one.against is Against.ALONE)
    key = next(losses, None)
    found = None if key is None else _weighted(key, ranks, alone)
    if found is None or abs(found.weighted - found.expected) > _SHARE * abs(found.plain - found.expected):
        return None
    return (
        f"every rank divides its loss by a number of its own ({found.counts_text})",
        "weighted by these, the losses are that of one rank. Divide the sum by what all ranks have together (an "
        "all_reduce of the number), times the number of ranks where gradients are averaged, as DDP and FSDP do",
    )


def without_weighted_losses(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun) -> Numbers:
    """``numbers`` without losses of which each is a mean of a rank's own samples, where nothing else is wrong and what
    is trained was compared: then the program weighs gradients, or weights, by how many samples a rank has.
    """
    wrong = [one.key for one in numbers.disagreements]
    if not wrong or any(one.kind != "loss" for one in wrong) or not (numbers.gradients or _trains_as(ranks, alone)):
        return numbers
    found = [_weighted(key, ranks, alone) for key in wrong]
    if not all(one is not None and math.isclose(one.weighted, one.expected, rel_tol=_SAME) for one in found):
        return numbers
    first = next(one for one in found if one is not None)
    note = (
        f"every rank divides its loss by a number of its own ({first.counts_text}): weighted by these, the losses are "
        "that of one rank, and what is trained by them is too"
    )
    return replace(numbers, disagreements=(), equal=numbers.equal + len(wrong), notes=(*numbers.notes, note))


@dataclass(frozen=True)
class _Weighted:
    """The mean of the ranks' losses, weighted by what each has divided by, and not; and that of one rank."""

    counts: Sequence[float]
    weighted: float
    plain: float
    expected: float

    @property
    def counts_text(self) -> str:
        return ", ".join(f"{count:.6g}" for count in self.counts)


def _weighted(key: Key, ranks: Sequence[RankRun], alone: RankRun) -> _Weighted | None:
    """None where the ranks divide by the same number, or nobody knows by which."""
    counts = [run.divisors[key] for run in ranks if key in run.divisors]
    values = [value for run in ranks if (value := _value(run, key)) is not None]
    expected = _value(alone, key)
    if len(set(counts)) < 2 or expected is None or len(counts) != len(values):
        return None
    weighted = math.fsum(map(math.prod, zip(counts, values, strict=True))) / math.fsum(counts)
    return _Weighted(counts, weighted, math.fsum(values) / len(values), expected)


def _trains_as(ranks: Sequence[RankRun], alone: RankRun) -> bool:
    """Are there parameters after the last step, in all runs?"""
    runs = (*ranks, alone)
    return all(any(isinstance(one, Record) and one.key.kind == "trained" for one in run.entries) for run in runs)


def _value(run: RankRun, key: Key) -> float | None:
    entry = next((entry for entry in run.entries if entry.key == key), None)
    value = entry.value if isinstance(entry, Record) else None
    return float(value) if value is not None and value.numel() == 1 else None
