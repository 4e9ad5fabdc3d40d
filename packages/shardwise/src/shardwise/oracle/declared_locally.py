"""Is a rule true of a function that does not communicate? Runs on two parts, and on what they make up, tell."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.types.placement import PerMeshAxisSpmdType, R, Shard

from .function_runs import FunctionRuns, NotRun
from .trial_values import distance, random_values

_ROUGH = 0.05
"""Relative to the largest number: what rounding to few bits, by a scale of each part's own, makes of a result."""


def untrue_result(
    runs: FunctionRuns, operands: Sequence[PerMeshAxisSpmdType], results: Sequence[PerMeshAxisSpmdType | None]
) -> int | None:
    """The number of the first result that two ranks do not have as said; None if all are, or it cannot be told.

    ``operands``  R, a pending sum or S(i), for each that is floating-point.
    ``results``   the same; None: nothing is said.
    """
    if any(isinstance(one, Shard) for one in operands) and _depends_on_sizes(runs):
        return None
    parts: list[list[torch.Tensor]] = [[], []]
    whole: list[torch.Tensor] = []
    for position, (at, place) in enumerate(zip(runs.operands, operands, strict=True)):
        own = [random_values(runs.shape(at), 8, position, 0 if place is R else rank) for rank in range(2)]
        whole.append(_made_up(own, place))
        for rank in range(2):
            parts[rank].append(own[rank])
    try:
        found = [_run(runs, values) for values in (*parts, whole)]
    except (NotRun, RuntimeError):
        return None
    if any(len(one) != len(results) for one in found):
        return None
    for k, said in enumerate(results):
        pair, meant = [found[0][k], found[1][k]], found[2][k]
        if said is not None and not _is_so(pair, meant, said):
            return k
    return None


def _run(runs: FunctionRuns, values: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    def alone() -> tuple[torch.Tensor, ...]:
        return runs.observe(lambda rank: values, None, None, (runs.rank,), alone=True).points[0].results

    try:
        return alone()
    except NotRun:
        if runs.dtype is None:
            raise
        runs.dtype = None
        return alone()


def _depends_on_sizes(runs: FunctionRuns) -> bool:
    """True if it is given what may be a size of a part, in numbers or in tensors of whole numbers."""
    whole = any(isinstance(one, torch.Tensor) and not one.is_floating_point() for one in runs.args)
    return whole or any(abs(number.value) > 1 for number in runs.numbers)


def _made_up(parts: list[torch.Tensor], place: PerMeshAxisSpmdType) -> torch.Tensor:
    if isinstance(place, Shard):
        return torch.cat(parts, place.dim)
    return parts[0] if place is R else parts[0] + parts[1]


def _is_so(parts: list[torch.Tensor], meant: torch.Tensor, said: PerMeshAxisSpmdType) -> bool:
    """True also where it cannot be told: of other shapes, of numbers that are none, of none at all."""
    values = [one.double() for one in (*parts, meant)]
    if not all(bool(one.isfinite().all()) for one in values) or values[0].shape != values[1].shape:
        return True
    made = [_made_up(values[:2], said)]
    if said is R:
        made.append(values[1])
    if any(one.shape != meant.shape for one in made) or not meant.numel():
        return True
    near = _ROUGH * max(float(one.abs().max()) for one in values)
    return all(distance(one, values[2]) <= near for one in made)
