"""How a program is verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shardwise.interop.running.session import Partials
from shardwise.planner.links import NamedLinks

from .intervention import Intervention

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class VerifyOptions:
    """How a program is verified; the command line's options under the same names.

    ``double``     floating-point factories make float64 unless told otherwise.
    ``rtol``       how far values may be apart, relative to the largest; None takes it from their dtypes.
    ``every``      compare the result of every operation that has a type.
    ``narrow``     where something disagrees, run once more with every result and all types, to find where it begins.
    ``feed``       the run on one rank gets batches and random numbers of all ranks together; None: if the runs part.
    ``kept_bytes`` DataLoaders draw from streams of their own, as where one is fed; so much of their batches is kept.
    ``modules``    record what every module gives.
    ``data``       record what operations are given that has no gradient, beside everything else.
    ``layouts``    record buffers too, targets of losses, and gradients as backward computes them.
    ``project``    the folder of the program; from where its source reaches tensors is recorded too.
    ``changed``    what is done to the run from outside.
    ``record``     rank 0 of the mesh records the types of each line and module.
    ``show``       the program's own output on rank 0 goes to stderr; all other output is dropped.
    ``links``      what connects the ranks of each axis: repairs are ordered by it.
    ``still_s``    ranks of which for so long none has moved hang; None: those that are late do.
    """

    strict: bool = True
    local: bool = True
    partials: Partials = "infer"
    double: bool = False
    rtol: float | None = None
    timeout_s: float = TIMEOUT_S
    every: bool = False
    narrow: bool = True
    show: bool = False
    feed: bool | None = None
    kept_bytes: int = 0
    modules: bool = False
    data: bool = False
    layouts: bool = False
    project: Path | None = None
    changed: Intervention | None = None
    record: bool = False
    still_s: float | None = None
    links: NamedLinks = field(default_factory=NamedLinks)
