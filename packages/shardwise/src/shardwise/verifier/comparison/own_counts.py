"""Is a loss wrong because every rank divides by its own number of targets? Then their weighted mean is right.

rank 0: sum 74 over 37 targets, 2.0    rank 1: sum 129 over 43, 3.0    mean 2.5    one rank: 203 over 80, 2.5375
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.interop.running.recording import Key, Record

from ..distance.numbers import Against, Numbers
from ..records.record import RankRun

_SHARE = 0.02
"""The weighted mean is the loss of one rank if it is so much nearer to it than the plain one."""


def own_counts_note(numbers: Numbers, ranks: Sequence[RankRun], alone: RankRun) -> tuple[str, str] | None:
    """What there is to say of the first loss that is wrong, if that is why, and what else; None otherwise."""
    losses = (one.key for one in numbers.disagreements if one.key.kind == "loss" and one.against is Against.ALONE)
    key = next(losses, None)
    if key is None:
        return None
    counts = [run.divisors[key] for run in ranks if key in run.divisors]
    if len(set(counts)) < 2:
        return None
    values = [value for run in ranks if (value := _value(run, key)) is not None]
    expected = _value(alone, key)
    if expected is None or len(counts) != len(values):
        return None
    weighted = math.fsum(map(math.prod, zip(counts, values, strict=True))) / math.fsum(counts)
    plain = math.fsum(values) / len(values)
    if abs(weighted - expected) > _SHARE * abs(plain - expected):
        return None
    each = ", ".join(f"{count:.6g}" for count in counts)
    return (
        f"every rank divides its loss by a number of its own ({each})",
        "weighted by these, the losses are that of one rank. Divide the sum by what all ranks have together (an "
        "all_reduce of the number), times the number of ranks where gradients are averaged, as DDP and FSDP do",
    )


def _value(run: RankRun, key: Key) -> float | None:
    entry = next((entry for entry in run.entries if entry.key == key), None)
    value = entry.value if isinstance(entry, Record) else None
    return float(value) if value is not None and value.numel() == 1 else None
