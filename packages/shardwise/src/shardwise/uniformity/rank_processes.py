"""How are several ranks of a fake world run side by side? A process each, and this one brings their calls together.

A rank that needs what others hand in waits here until they have come. When all that are left wait, they wait for each
other: they are let go with values of their own, for a little while, and then cut off; their traces tell why they are
stuck (``uniformity.py``). A rank that dies, or goes on alone for long after the others have ended, is given up with
what it told until then.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from shardwise.diagnostics.finding import Finding
from shardwise.host.forking import scratch_folder, signals_held

from .calls import End, Ending, Trace, TracedCall, Wait
from .child_link import CUT, ChildLink
from .expressions import EqualValue
from .matching import Matcher, Meeting, clashes

TICK_S = 0.25
LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""
GRACE_S = 5.0
"""How long a rank that is told to stop may take to say what it found."""
PATIENCE_S = 60.0
PATIENCE_FACTOR = 10.0
"""A rank that takes this many times as long as the slowest that has ended, and ``PATIENCE_S`` at least, is given up."""
BEYOND_CALLS = 100
BEYOND_S = 10.0
"""How far ranks are followed after they have come to wait for each other, to see what each would have done next."""


@dataclass
class RankOutcome:
    """One rank's part: its trace, and what ``run`` returned in its process; None if it did not come to that.

    ``told``  what the rank has told of itself until its end.
    """

    trace: Trace
    report: str | None = None
    output: str = ""
    told: tuple[EqualValue | Finding, ...] = ()


@dataclass
class _Running:
    process: Any
    pipe: Connection
    started_s: float
    events: list[TracedCall | Wait] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    thread_count: int = 0
    told: list[EqualValue | Finding] = field(default_factory=list)
    parcels: dict[int, bytes] = field(default_factory=dict)
    owed: set[int] = field(default_factory=set)
    fetching: set[int] = field(default_factory=set)
    heard_s: float = 0.0
    told_to_stop_s: float | None = None
    cut: bool = False
    end: End | None = None
    report: str | None = None
    ended_s: float = 0.0

    @property
    def alive(self) -> bool:
        return self.end is None

    @property
    def waits(self) -> bool:
        """All its threads that issue calls wait here; after a long silence one is enough: the others wait for it."""
        silent = time.monotonic() > self.heard_s + PATIENCE_S
        return bool(self.fetching) and (silent or len(self.fetching) == self.thread_count)


Run = Callable[[int, ChildLink], tuple[End, str]]
Choose = Callable[[Sequence[int] | None], Sequence[int]]


class Coordinator:
    """Runs ``run(rank, link)`` in a process per rank, at most ``jobs`` of them busy at a time.

    ``choose``     the ranks to run, from the sizes of the mesh that the program makes; called with None if it makes
                   none before its ranks have to meet. ``early``: it can be called with None at once.
    ``timeout_s``  how long a rank may take; None for the rule of ``PATIENCE_FACTOR``.
    """

    def __init__(self, run: Run, choose: Choose, *, early: bool, jobs: int, timeout_s: float | None = None) -> None:
        self.run, self.choose, self.jobs, self.timeout_s = run, choose, jobs, timeout_s
        self.interrupted = False
        self.ranks: Sequence[int] = tuple(choose(None)) if early else ()
        self._queue: list[int] = list(self.ranks) if early else [0]
        self._matcher = Matcher(self.ranks) if early else None
        self._running: dict[int, _Running] = {}
        self._stuck_s: float | None = None
        self._beyond: dict[int, int] = {}
        self._shown = 0
        self._folder = Path()

    def status(self) -> str:
        """How far it is, in words."""
        ended = sum(not one.alive for one in self._running.values())
        events = sum(len(one.events) for one in self._running.values())
        return f"{ended} of {max(len(self.ranks), 1)} ranks done, {events} collectives"

    def collect(self) -> dict[int, RankOutcome]:
        """Run all to their ends. A Ctrl-C ends them early, with what they have; a second one ends them at once."""
        lifeline, ours = os.pipe()
        with scratch_folder("shardwise-ranks-") as self._folder:
            try:
                while self._queue or any(one.alive for one in self._running.values()):
                    try:
                        self._turn(lifeline, ours)
                    except KeyboardInterrupt:
                        if self.interrupted:
                            break
                        self._interrupt()
                return {rank: self._outcome(rank) for rank in sorted(self._running)}
            finally:
                for one in self._running.values():
                    one.process.kill()
                    one.process.join()
                    one.pipe.close()
                os.close(ours)
                os.close(lifeline)

    def _turn(self, lifeline: int, ours: int) -> None:
        busy = sum(one.alive and not one.fetching for one in self._running.values())
        while self._queue and busy < self.jobs:
            self._start(self._queue.pop(0), lifeline, ours)
            busy += 1
        alive = {one.pipe: rank for rank, one in self._running.items() if one.alive}
        for pipe in wait(list(alive), TICK_S):
            self._hear(alive[pipe])  # type: ignore[index]
        self._relay()
        self._mind_the_clock()
        self._free_the_stuck()

    def _start(self, rank: int, lifeline: int, ours: int) -> None:
        context = multiprocessing.get_context("fork")
        pipe, theirs = context.Pipe()
        args = (self.run, rank, theirs, self._output(rank), lifeline, ours)
        process = context.Process(target=_rank_main, args=args, daemon=True)
        sys.stderr.flush()
        with signals_held(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of forks in processes with threads
            process.start()
            theirs.close()
            self._running[rank] = _Running(process, pipe, time.monotonic())

    def _hear(self, rank: int) -> None:
        one = self._running[rank]
        try:
            while one.alive and one.pipe.poll():
                kind, *told = one.pipe.recv()
                one.heard_s = time.monotonic()
                if kind == "post":
                    self._posted(rank, *told)
                elif kind == "fetch":
                    one.fetching.add(told[0])
                    self._select(None)
                    self._answer(self._meeting(rank, told[0]))
                    if told[0] in one.fetching and self._stuck_s is not None:
                        self._let_go(rank)
                elif kind == "mesh":
                    self._select(told[0])
                elif kind == "told":
                    one.told.append(told[0])
                else:
                    self._ended(rank, *told)
        except (EOFError, OSError):
            one.process.join()
            code = one.process.exitcode
            how = f"of {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            self._ended(rank, End(Ending.DIED, how), None)

    def _ended(self, rank: int, end: End, report: str | None) -> None:
        one = self._running[rank]
        if one.cut:
            end = End(Ending.CUT)
        elif one.told_to_stop_s is not None and not self.interrupted:
            after_s = one.told_to_stop_s - one.started_s
            end = End(Ending.BUSY, f"after {after_s:.0f} s", end.location)
        one.end, one.report, one.ended_s = end, report, time.monotonic()
        one.fetching.clear()
        self._select(None)

    def _posted(self, rank: int, event: TracedCall | Wait, parcel: bytes | None, fetches: bool, thread: int) -> None:
        one = self._running[rank]
        one.events.append(event)
        one.threads.append(thread)
        one.thread_count = max(one.thread_count, thread + 1)
        position = len(one.events) - 1
        if parcel is not None:
            one.parcels[position] = parcel
        if fetches:
            one.owed.add(position)
        if self._matcher is not None and isinstance(event, TracedCall):
            self._answer(self._matcher.post(rank, position, event))

    def _select(self, sizes: Sequence[int] | None) -> None:
        """The ranks to run, as soon as the mesh is known or it is clear that it will not be."""
        if self._matcher is not None:
            return
        self.ranks = tuple(self.choose(sizes))
        self._queue += [rank for rank in self.ranks if rank not in self._running]
        self._matcher = Matcher(self.ranks)
        for rank, one in self._running.items():
            for position, event in enumerate(one.events):
                if isinstance(event, TracedCall):
                    self._matcher.post(rank, position, event)

    def _meeting(self, rank: int, position: int) -> Meeting:
        assert self._matcher is not None, "ranks are chosen before any of them is answered"
        return self._matcher.of(rank, position)

    def _answer(self, meeting: Meeting) -> None:
        """When all have come to a call, hand out what they brought to those that wait for it."""
        if not meeting.complete:
            return
        waiting = {rank: at for rank, (at, _) in meeting.calls.items() if at in self._running[rank].fetching}
        if not waiting:
            return
        found = [one for rank in meeting.calls for _, one in clashes(meeting, rank)]
        if any(one.code == "SW501" for one in found):
            return
        parcels = {
            rank: self._running[rank].parcels[at]
            for rank, (at, _) in meeting.calls.items()
            if at in self._running[rank].parcels
        }
        # Who has sent a message is told, also where what was sent does not travel.
        senders = [rank for rank, (_, call) in meeting.calls.items() if call.kind == "send"]
        parcels = dict.fromkeys(senders, b"") | parcels
        for rank, at in waiting.items():
            self._running[rank].owed.discard(at)
            self._tell(rank, at, None if found else parcels)
        if not any(at in self._running[rank].owed for rank, (at, _) in meeting.calls.items()):
            for rank, (at, _) in meeting.calls.items():
                self._running[rank].parcels.pop(at, None)

    def _tell(self, rank: int, position: int, answer: object) -> None:
        one = self._running[rank]
        one.fetching.discard(position)
        with contextlib.suppress(OSError):  # it has died meanwhile, which is heard of next
            one.pipe.send((position, answer))

    def _free_the_stuck(self) -> None:
        alive = [rank for rank, one in self._running.items() if one.alive]
        waiting = all(self._running[rank].waits for rank in alive)
        if alive and waiting and not self._queue and not any(self._running[rank].pipe.poll() for rank in alive):
            self._stuck_s = self._stuck_s or time.monotonic()
            for rank in alive:
                self._let_go(rank)

    def _let_go(self, rank: int) -> None:
        """A rank that is stuck goes on with values of its own, as far as is worth knowing."""
        self._beyond[rank] = self._beyond.get(rank, 0) + 1
        for position in tuple(self._running[rank].fetching):
            self._tell(rank, position, None if self._beyond[rank] < BEYOND_CALLS else CUT)

    def _mind_the_clock(self) -> None:
        now = time.monotonic()
        took_s = [one.ended_s - one.started_s for one in self._running.values() if not one.alive]
        patience_s = self.timeout_s
        if patience_s is None and took_s:
            patience_s = max(PATIENCE_S, PATIENCE_FACTOR * max(took_s))
        for rank, one in self._running.items():
            if not one.alive:
                continue
            if one.told_to_stop_s is not None:
                if now > one.told_to_stop_s + GRACE_S:
                    one.process.kill()
                    self._ended(rank, End(Ending.CUT), None)
            elif self._stuck_s is not None and now > self._stuck_s + BEYOND_S:
                one.cut = True
                self._stop(one)
            elif patience_s is not None and not one.fetching and now > one.started_s + patience_s:
                self._stop(one)

    def _interrupt(self) -> None:
        self.interrupted = True
        self._queue.clear()
        for one in self._running.values():
            if one.alive:
                self._stop(one)

    def _stop(self, one: _Running) -> None:
        one.told_to_stop_s = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.process.pid, signal.SIGINT)

    def _output(self, rank: int) -> Path:
        return self._folder / f"output{rank}"

    def _relay(self) -> None:
        """What the first rank prints, as it comes; the others print the same."""
        first = next(iter(self._running), None)
        if first is None:
            return
        if not self._output(first).exists():
            return
        with self._output(first).open("rb") as output:
            output.seek(self._shown)
            new = output.read()
        self._shown += len(new)
        if new:
            sys.stderr.write(new.decode(errors="replace"))
            sys.stderr.flush()

    def _outcome(self, rank: int) -> RankOutcome:
        one = self._running[rank]
        self._relay()
        output = self._output(rank)
        text = output.read_text(errors="replace") if output.exists() else ""
        return RankOutcome(
            Trace(rank, tuple(one.events), one.end or End(Ending.CUT), tuple(one.threads)),
            one.report,
            text,
            tuple(one.told),
        )


def _rank_main(run: Run, rank: int, pipe: Connection, output: Path, lifeline: int, parents_end: int) -> None:
    # A Ctrl-C reaches the parent, who passes it on; before the program runs there is nothing to be said of it.
    os.setsid()
    signal.signal(signal.SIGINT, lambda number, frame: LEAVE(1))
    os.close(parents_end)
    threading.Thread(target=_die_with_parent, args=(lifeline, output.parent), daemon=True).start()
    _write_to(output)
    link = ChildLink(pipe)
    end, report = run(rank, link)
    pipe.send(("end", End(Ending.CUT) if link.cut else end, report))
    sys.stderr.flush()
    # Threads and exit handlers of the program are not waited for.
    os._exit(0)


def _write_to(output: Path) -> None:
    """Everything that this process prints goes to a file; it reads nothing."""
    file = output.open("w", buffering=1)
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    sys.stdout = sys.stderr = file
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _die_with_parent(lifeline: int, folder: Path) -> None:
    os.read(lifeline, 1)  # returns when the parent's end closes, which is when the parent is gone
    shutil.rmtree(folder, ignore_errors=True)
    LEAVE(1)
