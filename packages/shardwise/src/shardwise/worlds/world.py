"""What can run a program on several ranks? Four worlds that look alike from outside.

``FakeWorld``       one rank runs and the others are imagined: shapes are right, values from other ranks are not.
``InProcessWorld``  every rank is a thread and one runs at a time: deterministic, and a deadlock is seen as it happens.
``ProcessWorld``    every rank is a process, and they talk over gloo: as a real job does.
``LaunchedWorld``   the ranks that torchrun has started, wherever they are, with their devices; this process is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .failures import CollectiveMismatch, Deadlock, RankFailure, RankTimeout
from .fake import fake_world
from .in_process.world import InProcessWorld
from .launched.world import LaunchedWorld
from .processes import ProcessWorld, run_processes
from .waiting import Entered, Standing

__all__ = [
    "CollectiveMismatch",
    "Deadlock",
    "Entered",
    "FakeWorld",
    "InProcessWorld",
    "LaunchedWorld",
    "ProcessWorld",
    "RankFailure",
    "RankTimeout",
    "Standing",
    "World",
    "run_processes",
]

Result = TypeVar("Result")


class World(Protocol):
    """Some ranks of a job of ``size``, with a default process group."""

    @property
    def size(self) -> int:
        """How many ranks the job has."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those of them that are run."""

    def run(self, fn: Callable[..., Result], *args: object) -> list[Result]:
        """What ``fn(*args)`` returns on each rank that is run, in the order of ``ranks``."""


@dataclass(frozen=True)
class FakeWorld:
    """Rank ``rank`` of ``size``, alone. An exception of the program comes out as it is."""

    size: int
    rank: int = 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """The one."""
        return (self.rank,)

    def run(self, fn: Callable[..., Result], *args: object) -> list[Result]:
        """What ``fn(*args)`` returns on this rank."""
        with fake_world(self.rank, self.size, joined=True):
            return [fn(*args)]
