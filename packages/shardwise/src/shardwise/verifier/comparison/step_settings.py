"""Is a step taken with another learning rate, momentum or decay than on one rank? Then what follows it differs.

lr=0.1 * dist.get_world_size()      step 1 (train.py:9:5) is taken with lr 0.2, and on one rank with lr 0.1
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from shardwise.interop.running.recording import StepSettings

from ..records.record import RankRun

_Different = tuple[StepSettings, str, float, float]
"""A step, the name of a setting, its value, and that on one rank."""


def settings_note(ranks: Sequence[RankRun], alone: RankRun) -> tuple[StepSettings, str, str] | None:
    """The first such step, how it is taken, and what else there is to say of it; None if there is none."""
    found = {run.rank: next(_differing(run.settings, alone.settings), None) for run in ranks}
    rank, first = next(((rank, one) for rank, one in found.items() if one is not None), (0, None))
    if first is None:
        return None
    step, name, here, there = first
    every = all(one is not None and one[1:] == first[1:] for one in found.values())
    whose = "" if every else f" on rank {rank}"
    taken = f"is taken with {name} {here:.6g}{whose}, and on one rank with {name} {there:.6g}"
    further = (
        "that alone makes what comes after it differ. A setting that is meant to follow the number of ranks is "
        "compared by giving both runs the same value"
    )
    return step, taken, further


def _differing(steps: Sequence[StepSettings], alone: Sequence[StepSettings]) -> Iterator[_Different]:
    """In program order. A step that one rank does not take, or with other groups of parameters, is no word on this."""
    there = {(one.optimizer, one.step): one for one in alone}
    for step in steps:
        other = there.get((step.optimizer, step.step))
        if other is not None and len(other.values) == len(step.values):
            for here, alike in zip(step.values, other.values, strict=True):
                yield from ((step, name, here[name], alike[name]) for name in _unlike(here, alike))


def _unlike(here: Mapping[str, float], there: Mapping[str, float]) -> Iterator[str]:
    for name, value in here.items():
        if name in there and not math.isclose(value, there[name], rel_tol=1e-9):
            yield name
