"""What is done to a run from outside: results moved, outputs of modules put right, batches and weights given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from shardwise.interop.running.recording import Key

from .batches import Batches
from .draws import Draws


@dataclass(frozen=True)
class Intervention:
    """How a run differs from that of the program as it is.

    ``rounding``  the dtype by whose rounding results, parameters and gradients are moved at random; None: they are not.
    ``rounds_products``  results of finer dtypes are moved by it too, as on a device that multiplies in TF32.
    ``seed``      of these moves.
    ``fed``       by the key of the record what a module gives on one rank: it replaces what the module gives here as
                  soon as that is recorded, so that no module inherits the errors of those before it.
    ``batches``   what DataLoaders give on one rank.
    ``draws``     how every rank drew random numbers, which one rank draws together.
    ``pieces``    by the key of the record what operations are given on each rank of the mesh.
    ``weights``   by name the initial weights of one rank, in place of those that it draws.
    """

    rounding: torch.dtype | None = None
    rounds_products: bool = False
    seed: int = 0
    fed: Mapping[Key, torch.Tensor] = field(default_factory=dict)
    batches: Batches | None = None
    draws: Sequence[Draws] = ()
    pieces: Mapping[Key, Sequence[torch.Tensor]] = field(default_factory=dict)
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)
