"""How far do a run's tensors move if every result is off by one rounding? Measured, by runs with such errors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shardwise.interop.running.recording import Key, Record

from ..records.options import VerifyOptions
from ..records.record import RankRun
from ..records.rounded import Moved
from .difference import left_over, rms_of, scale_of
from .numbers import Numbers

_NEAR = 1e-2
"""A disagreement of so little, relative to the largest element, may be rounding that a long computation magnifies."""


class NoneMoved(dict[Key, Moved]):
    """A spread that allows for no rounding but that of the tensors themselves: what agrees by it needs no measuring."""

    def __missing__(self, key: Key) -> Moved:
        return Moved(0.0, 0.0)

    def get(self, key: Key, default: object = None) -> Moved:
        return self[key]


def is_low(dtype: torch.dtype) -> bool:
    """Is it coarser than single precision?"""
    return dtype.is_floating_point and torch.finfo(dtype).eps > torch.finfo(torch.float32).eps


def rounding_to_measure(runs: Sequence[RankRun], numbers: Numbers, options: VerifyOptions) -> torch.dtype | None:
    """The coarsest dtype of the runs, if its rounding may be what makes them disagree; None if there is no need to ask.

    In single precision that may be so where what disagrees first does so by little: what follows may be far off, as an
    adaptive optimizer steps as far for a gradient that is nearly zero, whatever its sign. Or something disagrees by no
    more than roundings of the run's largest number: a loss that is zero in theory (of a policy that has not moved yet,
    with normalised advantages) has no size of its own. Nor has a number that is read: of ``(plus - minus) / (2 * eps)``
    nothing may be left but roundings, and those divided by little.

    ``runs``  those on the mesh, and last that on one rank.
    """
    if options.rtol is not None or not numbers.disagreements:
        return None
    dtypes = {dtype for run in runs for dtype in run.rounded_to if dtype.is_floating_point}
    coarsest = max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=None)
    if coarsest is None or is_low(coarsest):
        return coarsest
    if all(one.key.kind == "read" for one in numbers.disagreements):
        return coarsest
    sizes = [(one.difference.largest, one.difference.scale) for one in numbers.disagreements if one.difference]
    records = (entry.value for entry in runs[-1].entries if isinstance(entry, Record) and entry.value is not None)
    cancelled = left_over(coarsest, scale_of(*records))
    first = numbers.disagreements[0].difference
    near = first is not None and first.largest <= _NEAR * first.scale
    return coarsest if near or any(apart <= cancelled for apart, _ in sizes) else None


def outputs_of(run: RankRun) -> dict[Key, torch.Tensor]:
    """What the modules of a run have given."""
    records = (entry for entry in run.entries if isinstance(entry, Record) and entry.key.kind == "module")
    return {record.key: record.value for record in records if record.value is not None}


def spread_of(alone: RankRun, moved: Sequence[RankRun]) -> dict[Key, Moved]:
    """By the key of a record of ``alone`` the farthest that it is in the runs ``moved``."""
    found: dict[Key, Moved] = {}
    runs = [{entry.key: entry for entry in run.entries if isinstance(entry, Record)} for run in moved]
    for entry in alone.entries:
        value = entry.value if isinstance(entry, Record) else None
        if value is None or not value.is_floating_point() or not value.numel():
            continue
        others = [run[entry.key].value for run in runs if entry.key in run]
        distances = [_distance(value, other) for other in others if other is not None and other.shape == value.shape]
        if distances:
            found[entry.key] = Moved(max(one.largest for one in distances), max(one.rms for one in distances))
    return found


def _distance(one: torch.Tensor, other: torch.Tensor) -> Moved:
    off = (one.double() - other.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    return Moved(float(off.max()), rms_of(off))
