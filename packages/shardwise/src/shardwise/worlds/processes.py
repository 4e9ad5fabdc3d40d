"""How is a program run on several ranks on one machine? As forked processes that talk over gloo, on loopback only.

A rank that fails is reported with its number and its traceback. Of ranks that do not come back it is said which
collective each is in, who never came to it, and the line; and no process outlives the call or its caller.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.host.forking import scratch_folder, signals_held
from shardwise.host.torchrun import TorchrunJob
from shardwise.interop.tensors.parcels import packed
from shardwise.mesh.entry import set_current_entry

from .failures import RankFailure, RankTimeout
from .flight_recorder import Whereabouts, messages_noted, standings, whereabouts
from .seeding import origin, seed_rank
from .standstill import Standstill
from .waiting import listed

Result = TypeVar("Result")

LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""

_GRACE_S = 2.0
"""How long the other ranks may still report after one has failed: the first to fail is not always the first to tell."""

_ANSWER_S = 3.0
"""How long a rank that is late may take to say where it is. One that holds the interpreter's lock never answers."""

STUCK_S = 10.0
"""After so long it is asked whether ranks of which none has moved are all in collectives: then none ever will."""

_LOOK_S = 0.5
"""How often it is looked whether the ranks stand still."""

_GLOO_MARGIN_S = 30.0
"""How much longer than we gloo waits: our report knows more than its own."""


@dataclass(frozen=True)
class ProcessWorld:
    """``size`` ranks, each a process. Start-up takes well under a second; ``timeout_s`` bounds the whole run."""

    size: int
    timeout_s: float = 60.0

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(self.size))

    def run(self, fn: Callable[..., Result], *args: object) -> list[Result]:
        """What ``fn(*args)`` returns on each rank; see ``run_processes``."""
        return run_processes(fn, self.size, *args, timeout_s=self.timeout_s)


MOST = 256
"""Ranks that are started on one machine, each a process of its own."""


def run_processes(
    fn: Callable[..., Result],
    world_size: int,
    *args: object,
    timeout_s: float = 60.0,
    still_s: float | None = None,
    stuck_s: float = STUCK_S,
    ended_early: Callable[[Result], bool] = lambda result: False,
) -> list[Result]:
    """What ``fn(*args)`` returns on each rank, in rank order.

    ``still_s``      ranks of which for so long none has moved wait for what never comes, and are not waited for.
    ``stuck_s``      the same of ranks that are all in collectives or messages, as far as they have not come back.
    ``ended_early``  of a result: its rank has left the others alone. They are given a moment to end too, and ranks
                     that do not are left out of what is returned.

    Every rank is a fork of this process with a default gloo process group and the variables that ``torchrun`` sets.
    Results travel by pickle.
    Errors: RankFailure if a rank raises, RankTimeout if some do not finish within ``timeout_s`` seconds or stand still,
    SW903 for a world without ranks, or of more than ``MOST``.
    """
    TorchrunJob(world_size)
    if world_size > MOST:
        raise SpmdValueError(
            f"{world_size} ranks are {world_size} processes on this machine, more than {MOST}",
            code="SW903",
            help=("axes of two ranks show what larger ones do",),
        )
    if dist.is_available() and dist.is_initialized():
        raise RuntimeError("run_processes makes its own process group, and this process has one already")
    context = multiprocessing.get_context("fork")
    lifeline_read, lifeline_write = os.pipe()
    start = origin()
    with scratch_folder("shardwise-world-") as folder:
        ranks: list[Any] = []
        connections: list[Connection] = []
        try:
            for rank in range(world_size):
                ours, theirs = context.Pipe()
                world = _Place(rank, world_size, timeout_s, folder, lifeline_read, lifeline_write, start)
                process = context.Process(target=_rank_main, args=(world, theirs, fn, args), daemon=True)
                with signals_held(), warnings.catch_warnings():
                    # Python 3.12 warns about forks of processes with threads; ours start no work before they fork.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                    theirs.close()
                    ranks.append(process)
                    connections.append(ours)
            return _collect(ranks, connections, world_size, timeout_s, still_s, stuck_s, folder, ended_early)
        finally:
            for process in ranks:
                if process.is_alive():
                    process.kill()
                process.join()
            for connection in connections:
                connection.close()
            os.close(lifeline_write)
            os.close(lifeline_read)


@dataclass(frozen=True)
class _Place:
    """One rank's place in the world."""

    rank: int
    size: int
    timeout_s: float
    folder: Path
    lifeline: int
    parents_end: int
    origin: int


def _rank_main(place: _Place, connection: Connection, fn: Callable[..., object], args: tuple[object, ...]) -> None:
    os.close(place.parents_end)
    speaking = threading.Lock()
    watch = threading.Thread(target=_watch, args=(place, connection, speaking, threading.get_ident()), daemon=True)
    watch.start()
    stacks = open(_stack_file(place.folder, place.rank), "w")  # noqa: SIM115  open as long as the process lives
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    # The fork inherits OpenMP's pool without its threads, so no op may want one.
    torch.set_num_threads(1)
    set_current_entry(None)
    seed_rank(place.origin, place.rank)
    try:
        os.environ.update(TorchrunJob(place.size, place.rank).variables)
        os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
        store = dist.FileStore(str(place.folder / "store"), place.size)  # type: ignore[attr-defined]
        dist.init_process_group(
            "gloo",
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=place.timeout_s + _GLOO_MARGIN_S),
        )
        _wait_for_all(store, place.size)
        with messages_noted():
            message = ("result", packed(fn(*args)))
    except BaseException as error:
        message = ("failure", _pickled_or_none(error), traceback.format_exc())  # type: ignore[assignment]
    with speaking:
        connection.send(message)
    if message[0] == "result" and dist.is_initialized():
        dist.destroy_process_group()


def _wait_for_all(store: Any, size: int) -> None:
    """Nobody starts before all are connected: a short program would end while others still try to reach it."""
    if store.add("connected", 1) == size:
        store.set("all connected", "yes")
    store.wait(["all connected"])


def _watch(place: _Place, connection: Connection, speaking: threading.Lock, thread: int) -> None:
    """Say where this rank is when asked, and die with the caller."""
    while True:
        if place.lifeline in wait([place.lifeline, connection]):
            shutil.rmtree(place.folder, ignore_errors=True)
            LEAVE(1)  # the caller's end has closed, which is when the caller is gone
        try:
            connection.recv()
            with speaking:
                connection.send(("whereabouts", whereabouts(thread)))
        except (EOFError, OSError):
            return


def _pickled_or_none(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return None
    return data


def _collect(
    ranks: list[BaseProcess],
    connections: list[Connection],
    world_size: int,
    timeout_s: float,
    still_s: float | None,
    stuck_s: float,
    folder: Path,
    ended_early: Callable[[Any], bool],
) -> list[Any]:
    deadline = time.monotonic() + timeout_s
    numbers = [process.pid or 0 for process in ranks]
    standstill = None if still_s is None else Standstill(numbers, still_s)
    stuck = _Stuck(numbers, stuck_s)
    still: float | None = None
    early = False
    results: dict[int, Any] = {}
    failures: list[tuple[int, bytes | None, str]] = []
    pending = dict(zip(connections, range(world_size), strict=True))
    while pending:
        left_s = max(0.0, deadline - time.monotonic())
        ready = wait(list(pending), min(left_s, _LOOK_S))
        if not ready:
            if standstill is not None and standstill.reached():
                still = still_s
            if still is not None or time.monotonic() >= deadline:
                break
            stuck.look(pending)
        for connection in ready:
            assert isinstance(connection, Connection), "only connections are waited for"
            rank = pending.pop(connection)
            try:
                kind, *payload = connection.recv()
            except (EOFError, OSError):  # perhaps in the middle of a message
                ranks[rank].join()
                failures.append((rank, None, f"the process ended without a word, exit code {ranks[rank].exitcode}"))
            else:
                if kind == "whereabouts":
                    pending[connection] = rank
                    stuck.told(rank, *payload)
                elif kind == "result":
                    results[rank] = pickle.loads(payload[0])
                    early |= ended_early(results[rank])
                else:
                    failures.append((rank, payload[0], payload[1]))
            if failures or early:
                deadline = min(deadline, time.monotonic() + _GRACE_S)
        if stuck.holds(pending.values()):
            still = stuck_s
            break
    if failures:
        rank, error, report = failures[0]
        if results and "by peer" in report:  # gloo: connection closed, or reset, by peer
            report = f"{listed(results)} had returned by then\n\n{report}"
        others = tuple(sorted(other for other, _, _ in failures[1:]))
        raise RankFailure(rank, world_size, report, others) from (None if error is None else pickle.loads(error))
    if pending and not early:
        missing = tuple(sorted(pending.values()))
        known = _ask(pending)
        silent = dict.fromkeys(set(missing) - set(known), "does not say where it is")
        standing = standings(known, dict.fromkeys(results, "has returned") | silent)
        stacks = _stacks_of(missing, ranks, folder)
        raise RankTimeout(missing, world_size, timeout_s, stacks, standing, still_s=still)
    return [results[rank] for rank in sorted(results)]


class _Stuck:
    """Whether all ranks that have not come back are in collectives or messages, and none has moved for ``stuck_s``."""

    def __init__(self, processes: Collection[int], stuck_s: float) -> None:
        self._processes, self._stuck_s = processes, stuck_s
        self._standstill = Standstill(processes, stuck_s)
        self._answers: dict[int, Whereabouts] | None = None
        """By rank, where each is; None while nobody is asked."""

    def look(self, pending: Iterable[Connection]) -> None:
        """To be called every now and then: ask the ranks where they are if they stand still."""
        if self._answers is None and self._standstill.reached():
            self._answers = {}
            for connection in pending:
                with contextlib.suppress(OSError):  # it has ended, of which the next look tells
                    connection.send("where")

    def told(self, rank: int, where: Whereabouts) -> None:
        """A rank has answered."""
        if self._answers is not None:
            self._answers[rank] = where

    def holds(self, ranks: Collection[int]) -> bool:
        """Have all of ``ranks`` answered, and is it so? If one is elsewhere, it is looked anew."""
        answers = self._answers
        if answers is None or not ranks or any(rank not in answers for rank in ranks):
            return False
        if all((answers[rank].inside or answers[rank].message) is not None for rank in ranks):
            return True
        self._answers, self._standstill = None, Standstill(self._processes, self._stuck_s)
        return False


def _ask(pending: dict[Connection, int]) -> dict[int, Whereabouts]:
    """Where the ranks are that did not come back, as far as they answer."""
    answers: dict[int, Whereabouts] = {}
    for connection in pending:
        connection.send("where")
    deadline = time.monotonic() + _ANSWER_S
    silent = dict(pending)
    while silent:
        ready = wait(list(silent), max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for one in ready:
            assert isinstance(one, Connection), "only connections are waited for"
            rank = silent.pop(one)
            try:
                kind, *payload = one.recv()
            except (EOFError, ConnectionResetError):
                continue
            if kind == "whereabouts":
                answers[rank] = payload[0]
    return answers


def _stacks_of(missing: tuple[int, ...], ranks: list[Any], folder: Path) -> str:
    """The stacks of the ranks that did not come back."""
    for rank in missing:
        if ranks[rank].is_alive():
            os.kill(ranks[rank].pid, signal.SIGUSR1)
    time.sleep(0.3)
    texts = []
    for rank in missing:
        file = _stack_file(folder, rank)
        text = file.read_text().strip() if file.exists() else ""
        texts.append(f"rank {rank} is at:\n{text or '(no stack)'}")
    return "\n\n".join(texts)


def _stack_file(folder: Path, rank: int) -> Path:
    return folder / f"stack{rank}"


def _loopback() -> str:
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
