"""The world of the ranks that a launcher has started, with the interface of the others."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from shardwise.host.launcher import LaunchedRank

from .job import LaunchedJob
from .watch import Loss

Result = TypeVar("Result")


@dataclass(frozen=True)
class LaunchedWorld:
    """All ranks of the job of which this process is one; every one of them makes the same calls.

    Make one with ``joined_world``. The program makes the process groups.
    """

    job: LaunchedJob

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return self.job.me.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.size))

    def run(self, fn: Callable[..., Result], *args: object) -> list[Result]:
        """What ``fn(*args)`` returns on each rank, in rank order, on rank 0; nothing elsewhere.

        Results travel by pickle. If it raises on a rank, the job ends with the report of a loss.
        """
        try:
            value = fn(*args)
        except Exception:
            self.job.crashed(traceback.format_exc())
            raise
        return list(self.job.gather("result", value))

    def agree(self, value: object = None) -> Any:
        """The ``value`` of rank 0, on every rank; the last thing that they do together."""
        if self.job.me.rank == 0:
            self.job.end(value)
            return value
        agreed = self.job.serve(lambda question: None)
        self.job.heard()
        return agreed


@contextlib.contextmanager
def joined_world(me: LaunchedRank, timeout_s: float, tell: Callable[[Loss], None]) -> Iterator[LaunchedWorld]:
    """The world, watched inside the block: when a rank is lost, ``tell`` reports it on another and all end with 2."""
    job = LaunchedJob(me, timeout_s, tell)
    with job.watched():
        yield LaunchedWorld(job)
