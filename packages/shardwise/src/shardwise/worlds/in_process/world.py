"""How is a program run on all ranks inside this process? On a thread per rank, each with process groups of its own."""

from __future__ import annotations

import copy
import ctypes
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shardwise.host.torchrun import TorchrunJob
from shardwise.interop.torch_compat import default_group_exists, groups_per_thread

from ..failures import Deadlock, RankFailure, RankTimeout
from ..flight_recorder import location_of
from ..seeding import origin, seed_rank
from ..waiting import Standing
from .group import RankGroup
from .meeting import GroupKey, Meetings
from .rank_state import RankState
from .turns import Abandoned, Turns

Result = TypeVar("Result")

_one_at_a_time = threading.Lock()

_GRACE_S = 2.0
"""How long a rank that is late may take to unwind."""


@dataclass(frozen=True)
class InProcessWorld:
    """``size`` ranks, each a thread; one runs at a time, in an order that depends on the program alone.

    What a process has once, the ranks share: modules and globals of the program, tensors that closures hold, files, the
    working directory. Arguments are copied for every rank; random generators, the default dtype and the variables of
    ``torchrun`` are each rank's own. A rank passes the turn on only where it waits for a collective, so a program that
    waits by other means (a lock, a store) for another rank does not end; ``timeout_s`` bounds the run.
    """

    size: int
    timeout_s: float = 60.0

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.size))

    def run(self, fn: Callable[..., Result], *args: object) -> list[Result]:
        """What ``fn(*args)`` returns on each rank, in rank order: the objects themselves.

        Errors: RankFailure if a rank raises; Deadlock as soon as no rank can go on; CollectiveMismatch if the calls
        that meet do not agree; RankTimeout after ``timeout_s`` seconds, when a thread that does not come back is left
        behind.
        """
        if default_group_exists():
            raise RuntimeError("a world makes its own process groups, and this process has one already")
        if not _one_at_a_time.acquire(blocking=False):
            raise RuntimeError("another thread of this process runs an in-process world")
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)  # as in processes, so that sums come out the same
            return _Run(self, fn, args).results()
        finally:
            torch.set_num_threads(threads)
            _one_at_a_time.release()


def raise_in_thread(thread: int | None, error: type[BaseException]) -> None:
    """Raise ``error`` in another thread, before its next Python instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread or 0), ctypes.py_object(error))


class _Run:
    """One run of a program in a world."""

    def __init__(self, world: InProcessWorld, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        self._world, self._fn = world, fn
        self._args = [copy.deepcopy(args) for _ in world.ranks]
        self._caller = RankState(dict.fromkeys(TorchrunJob(world.size).variables))
        self._states = [RankState(TorchrunJob(world.size, rank).variables) for rank in world.ranks]
        self._origin = origin()
        self.turns = Turns(
            world.size,
            on_stuck=self._stuck,
            suspend=lambda rank: self._states[rank].save(),
            resume=lambda rank: self._states[rank].restore(),
        )
        self.meetings = Meetings(self._fail)
        self._store = dist.HashStore()  # type: ignore[attr-defined]
        self._results: dict[int, Any] = {}
        self._failures: list[tuple[int, BaseException, str]] = []
        self._fatal: BaseException | None = None

    def results(self) -> list[Any]:
        """Run all ranks to their end."""
        with groups_per_thread() as join:
            threads = [
                threading.Thread(target=self._rank_main, args=(rank, join), name=f"rank {rank}", daemon=True)
                for rank in self._world.ranks
            ]
            try:
                for thread in threads:
                    thread.start()
                self.turns.begin()
                if not self.turns.over.wait(self._world.timeout_s) and not self._failures:
                    raise self._timeout(threads)
            finally:
                self.turns.abandon()
                if not self.turns.over.is_set():
                    self._unwind(threads)
                self._caller.restore()
        if self._fatal is not None:
            raise self._fatal
        if self._failures:
            rank, error, report = self._failures[0]
            others = tuple(sorted(other for other, _, _ in self._failures[1:]))
            raise RankFailure(rank, self._world.size, report, others) from error
        return [self._results[rank] for rank in self._world.ranks]

    def _rank_main(self, rank: int, join: Callable[..., None]) -> None:
        try:
            self.turns.attend(rank)
            join(lambda name: self._default_group(name, rank), "gloo", self._store)
            try:
                seed_rank(self._origin, rank)
                with torch.autograd.set_multithreading_enabled(False):  # backward passes too run on this thread
                    self._results[rank] = self._fn(*self._args[rank])
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()
        except Abandoned:
            pass
        except BaseException as error:
            self._failures.append((rank, error, traceback.format_exc()))
        finally:
            self.turns.end(rank)

    def _unwind(self, threads: list[threading.Thread]) -> None:
        """End the program of the rank that has the turn, and with it all others, as soon as it is in Python again."""
        running = self.turns.running
        if running is not None:
            raise_in_thread(threads[running].ident, Abandoned)
            self.turns.over.wait(_GRACE_S)

    def _default_group(self, name: str, rank: int) -> RankGroup:
        return RankGroup(self, GroupKey(name, self._world.ranks), rank, "default_pg")

    def _fail(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self.turns.abandon()

    def _stuck(self) -> None:
        if not self._failures and self._fatal is None:
            self._fatal = Deadlock(self._world.size, self._standings())

    def _standings(self) -> tuple[Standing, ...]:
        return tuple(
            Standing(rank, instead="has returned") if rank in self._results else self.meetings.standing(rank)
            for rank in self._world.ranks
        )

    def _timeout(self, threads: list[threading.Thread]) -> RankTimeout:
        """Where the ranks are that did not end; the one that has the turn is somewhere in its program."""
        frames = sys._current_frames()
        late = tuple(rank for rank in self._world.ranks if rank not in self._results)
        standings, stacks = [], []
        for rank, standing in zip(self._world.ranks, self._standings(), strict=True):
            frame = frames.get(threads[rank].ident or 0)
            if rank == self.turns.running and frame is not None:
                standing = Standing(rank, location=location_of(frame))
                stacks.append(f"rank {rank} is at:\n{''.join(traceback.format_stack(frame))}")
            standings.append(standing)
        return RankTimeout(late, self._world.size, self._world.timeout_s, "\n".join(stacks), tuple(standings))
