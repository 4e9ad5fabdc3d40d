"""Which calls of a run are those of one step? A step ends where an optimizer has moved the parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

Event = TypeVar("Event")


@dataclass
class StepEnds:
    """How many events had come at the end of every step of each optimizer."""

    of: dict[Optimizer, list[int]] = field(default_factory=dict)

    @contextlib.contextmanager
    def noticed(self, events: Sized) -> Iterator[None]:
        """Those of the block."""

        def end(optimizer: Optimizer, *_: object) -> None:
            self.of.setdefault(optimizer, []).append(len(events))

        hook = register_optimizer_step_post_hook(end)
        try:
            yield
        finally:
            hook.remove()

    def within(self, events: Sequence[Event]) -> tuple[int, list[Event]]:
        """Whole steps, and the events in them: from the end of the first one to that of the last.

        What comes before is the set-up of the program and its first step, which cannot be told apart. Of several
        optimizers the one that goes most often says what a step is.
        """
        ends = max(self.of.values(), key=len, default=[])
        return (len(ends) - 1, list(islice(events, ends[0], ends[-1]))) if len(ends) > 1 else (0, [])
