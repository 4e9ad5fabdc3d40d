"""How far does rounding move a run? The same run on one rank is repeated with such errors, and compared with itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from .distance.spread import is_low, spread_of
from .records.intervention import Intervention
from .records.options import VerifyOptions
from .records.record import RankRun
from .records.rounded import Spread

TIMES = 3
"""How often the run on one rank is repeated."""
TF32 = torch.float16
"""Products of float32 that a device rounds to TF32 keep 10 bits, as many as this dtype has."""


def measured(
    alone: RankRun,
    options: VerifyOptions,
    rounding: torch.dtype,
    run: Callable[[VerifyOptions, str], RankRun | None],
    *,
    of_products: bool = False,
) -> Spread | None:
    """How far ``rounding`` moves what ``alone`` has recorded; None where such a run does not come to its end.

    ``run``          the same run on one rank with other options, and what to say meanwhile.
    ``of_products``  also results of finer dtypes are rounded so, as a device does that has TF32.
    """
    moved = []
    for seed in range(1, TIMES + 1):
        changed = replace(options.changed or Intervention(), rounding=rounding, rounds_products=of_products, seed=seed)
        came = run(replace(options, changed=changed), f"measuring rounding, {seed} of {TIMES}")
        if came is None:
            return None
        moved.append(came)
    return spread_of(alone, moved)


def rounding_to_record(alone: RankRun) -> tuple[torch.dtype | None, bool]:
    """By which dtype's rounding a run that is kept for others is to be moved, and whether products are: the ranks that
    are compared with it some day are not there to say by how much they are apart. None in single precision.
    """
    low = [dtype for dtype in alone.dtypes if is_low(dtype)]
    if low:
        return max(low, key=lambda dtype: torch.finfo(dtype).eps), False
    return (TF32, True) if alone.tf32 else (None, False)
