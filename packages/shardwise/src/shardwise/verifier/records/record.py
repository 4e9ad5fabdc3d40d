"""What came of one rank's run: what was recorded, what the types say, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from shardwise.diagnostics.result import RunResult
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Draw, Key, Record, StepSettings
from shardwise.types.aliases import Axis

from .annotation_sites import AnnotationSites
from .batches import Batches
from .draws import Draws
from .rounded import Spread


@dataclass(frozen=True, slots=True)
class Crash:
    """The program raised on this rank.

    ``text``   what it did, in one line; ``traceback`` with the program's own frames, or what it said.
    ``at_s``   when, on a clock that all ranks share: the others fail because the first one is gone.
    """

    text: str
    location: SourceLocation | None
    traceback: str
    at_s: float


@dataclass(frozen=True)
class BufferEnds:
    """What a buffer of a module held before the first step, and at the end.

    ``weights``  digests of parameters beside it, by which its module is known on other ranks.
    """

    before: torch.Tensor
    after: torch.Tensor
    weights: frozenset[bytes]


@dataclass
class RankRun:
    """What came of the program on one rank.

    ``entries``  records and draws in program order.
    ``axes``     names of mesh axes as the program calls them.
    ``dtypes``   the floating-point dtypes of what was computed and has a gradient.
    ``crash``    how it ended before its time, None if it did not.
    ``rank``     which one.
    ``sites``    from where the source reaches parameters and inputs, if that was asked for.
    ``steps``    how many entries there were before each optimizer step.
    ``untrained``   parameters that an optimizer has, that require a gradient, and have never had one.
    ``narrow_sums`` where it sums over ranks in a narrow dtype, in words.
    ``batches``     what its DataLoaders have given, if that was asked for.
    ``draws``       how it drew random numbers, if that was asked for.
    ``drawn_together``  how often one rank put together what the ranks drew.
    ``data``        what operations were given that has no gradient, if that was asked for.
    ``scale_free``  an optimizer has stepped whose steps may not depend on how large gradients are.
    ``settings``  what each optimizer step was taken with.
    ``divisors``  what each loss was divided by on this rank, where its graph tells.
    ``talking_steps``  an optimizer's step has issued collectives: gradients that enter it may be terms of its sums.
    ``tf32``      products of float32 are rounded to TF32 where the program's device can.
    ``spread``    how far rounding moves the records, where that was measured with them.
    ``data_parallel``  a module is wrapped so that several ranks share out the data.
    ``buffers``       small ones of modules that train which have changed, by name.
    """

    entries: list[Record | Draw] = field(default_factory=list)
    axes: dict[Axis, str] = field(default_factory=dict)
    dtypes: set[torch.dtype] = field(default_factory=set)
    types: RunResult = field(default_factory=RunResult)
    crash: Crash | None = None
    rank: int = 0
    sites: AnnotationSites = field(default_factory=AnnotationSites)
    steps: list[int] = field(default_factory=list)
    untrained: list[str] = field(default_factory=list)
    scale_free: bool = False
    talking_steps: bool = False
    settings: list[StepSettings] = field(default_factory=list)
    divisors: dict[Key, float] = field(default_factory=dict)
    data_parallel: bool = False
    tf32: bool = False
    spread: Spread | None = None
    narrow_sums: list[str] = field(default_factory=list)
    batches: Batches = field(default_factory=Batches)
    draws: Draws = field(default_factory=dict)
    drawn_together: int = 0
    data: list[Record] = field(default_factory=list)
    buffers: dict[str, BufferEnds] = field(default_factory=dict)

    @property
    def rounded_to(self) -> set[torch.dtype]:
        """Dtypes of what has a gradient, or of what is recorded where nothing has one."""
        values = (entry.value for entry in self.entries if isinstance(entry, Record) and entry.value is not None)
        return self.dtypes or {value.dtype for value in values if value.is_floating_point()}


def initial_parameters(run: RankRun) -> dict[str, torch.Tensor]:
    """The values of a run's parameters before the first step, by name."""
    found: dict[str, torch.Tensor] = {}
    for entry in run.entries:
        if isinstance(entry, Record) and entry.key.kind == "parameter" and entry.value is not None:
            found.setdefault(entry.key.name, entry.value)
    return found
