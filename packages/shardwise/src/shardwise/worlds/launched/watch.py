"""Is every launched rank still there? A thread on each says so, and hears when one has crashed, hangs, or is gone.

A rank that raises has told before it waits for the others. One that is killed tells nothing: the launcher then
terminates the rest, and who does not answer any more is the one that was lost. Whatever happens, the lowest rank that
is left writes one report, and every rank ends with the same exit code.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from shardwise.host.launcher import LaunchedRank

from ..flight_recorder import Whereabouts, standings, whereabouts
from ..waiting import Standing, listed
from .channel import Channel

BEAT_S = 1.0
"""How often a rank says that it is there."""
LOST_S = 60.0
"""After so long without a word a rank counts as lost. One that holds the interpreter's lock is silent for a while."""
_GRACE_S = 2.0
"""How long others may still crash, or answer, after the first: the first to fail is not always the first to tell."""
_LOOKED_AT = 100
"""How many ranks rank 0 looks after in a second."""
_BROKEN = 2
_exit = os._exit
"""Kept: a program that runs here finds another one."""


@dataclass(frozen=True)
class Loss:
    """Why a job cannot come to its end.

    ``text``       in one line.
    ``crashes``    what the ranks that raised have left, by rank.
    ``silent``     ranks that do not say any more that they are there.
    ``standings``  where every rank is, if some hang.
    """

    text: str
    crashes: Mapping[int, Any] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    standings: tuple[Standing, ...] = ()


class Watch:
    """The thread that watches on one rank.

    ``tell``   writes the report of a loss, on one rank only.
    ``leave``  is called before this process ends without coming back to what it does.
    """

    def __init__(
        self, me: LaunchedRank, timeout_s: float, tell: Callable[[Loss], None], leave: Callable[[], None]
    ) -> None:
        self._me, self._timeout_s, self._tell, self._leave = me, timeout_s, tell, leave
        self._channel = Channel()
        self._program = threading.get_ident()
        self._wake, self._alarm = os.pipe()
        self._over = threading.Event()
        self._since = self._looked = time.monotonic()
        self._beats: dict[int, tuple[bytes, float]] = {}
        self._thread = threading.Thread(target=self._run, name="shardwise-watch", daemon=True)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, which the main thread enters, this rank is watched and watches."""
        self._channel.put(f"state/{self._me.rank}", b"running")
        os.set_blocking(self._alarm, False)
        fd = signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        pid = os.getpid()

        def in_child() -> None:
            # A child of the program dies of the signal, as it would without us.
            if os.getppid() == pid and not self._over.is_set():
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

        os.register_at_fork(after_in_child=in_child)
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            signal.signal(signal.SIGTERM, before)
            signal.set_wakeup_fd(fd)
            os.write(self._alarm, b"\0")
            self._thread.join(_GRACE_S)

    def crashed(self, crash: object) -> None:
        """This rank's program has raised; returns never, because the job is over."""
        channel = Channel()
        channel.put(f"crash/{self._me.rank}", pickle.dumps(crash))
        channel.note("crashed", str(self._me.rank))
        self._over.wait()

    def restart_clock(self) -> None:
        """Another part of the job begins, which has a time of its own."""
        self._since = time.monotonic()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._beat()
                if self._heard_signal(BEAT_S):
                    self._told_to_end()
                self._obey()
                if self._me.rank == 0:
                    self._look_after_all()
                elif self._me.rank == 1:
                    self._look_after_first()
        except Exception as error:  # the store is gone, and with it the rank that holds it
            if not self._over.wait(_GRACE_S):
                if self._me.rank <= 1:
                    self._end(Loss(f"the ranks have lost each other: {type(error).__name__}: {error}"))
                self._exit()

    def _beat(self) -> None:
        self._channel.note(f"beat/{self._me.rank}", str(time.monotonic_ns()))

    def _heard_signal(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._wake], [], [], timeout_s)
        return bool(ready) and signal.SIGTERM in os.read(self._wake, 64)

    def _obey(self) -> None:
        if self._channel.has("where") and not self._channel.has(f"here/{self._me.rank}"):
            self._channel.put(f"here/{self._me.rank}", pickle.dumps(whereabouts(self._program)))
        if self._channel.has("stop") and self._me.rank != 0:
            self._exit()

    def _look_after_all(self) -> None:
        if self._channel.has("crashed"):
            before = self._last_words()
            time.sleep(_GRACE_S)
            self._beat()
            after = self._last_words()
            silent = tuple(rank for rank in before if rank and before[rank] == after[rank])
            self._end(Loss("the program raised", self._crashes(), silent))
        if time.monotonic() - self._looked < BEAT_S * self._me.size / _LOOKED_AT:
            return
        self._looked = time.monotonic()
        lost = [rank for rank in range(self._me.size) if self._is_silent(rank)]
        if lost:
            self._end(Loss(f"{listed(lost)} of {self._me.size} gave no sign of life for {LOST_S:g} s"))
        if time.monotonic() - self._since > self._timeout_s:
            self._end(self._late())

    def _last_words(self) -> dict[int, bytes | None]:
        return {rank: self._channel.noted(f"beat/{rank}") for rank in range(self._me.size)}

    def _crashes(self) -> dict[int, object]:
        came = (rank for rank in range(self._me.size) if self._channel.has(f"crash/{rank}"))
        return {rank: pickle.loads(self._channel.get(f"crash/{rank}", _GRACE_S)) for rank in came}

    def _look_after_first(self) -> None:
        if self._is_silent(0):
            self._end(Loss(f"rank 0 of {self._me.size} gave no sign of life for {LOST_S:g} s"))

    def _is_silent(self, rank: int) -> bool:
        beat = self._channel.noted(f"beat/{rank}")
        if beat is None:
            return time.monotonic() - self._since > max(LOST_S, self._timeout_s)
        before, at_s = self._beats.get(rank, (b"", 0.0))
        if beat != before:
            self._beats[rank] = (beat, time.monotonic())
            return False
        return time.monotonic() - at_s > LOST_S

    def _late(self) -> Loss:
        self._channel.put("where", b"?")
        self._obey()
        time.sleep(BEAT_S + _GRACE_S)
        known: dict[int, Whereabouts] = {}
        instead: dict[int, str] = {}
        for rank in range(self._me.size):
            if self._channel.has(f"ended/{rank}"):
                instead[rank] = "has come to its end"
            elif self._channel.has(f"here/{rank}"):
                known[rank] = pickle.loads(self._channel.get(f"here/{rank}", _GRACE_S))
            else:
                instead[rank] = "does not say where it is"
        late = [rank for rank in range(self._me.size) if not self._channel.has(f"ended/{rank}")]
        return Loss(
            f"{listed(late)} of {self._me.size} did not finish in {self._timeout_s:g} s",
            standings=standings(known, instead),
        )

    def _told_to_end(self) -> None:
        """The launcher terminates the job, most likely because it has lost a rank."""
        self._channel.put(f"terminated/{self._me.rank}", b"")
        time.sleep(_GRACE_S)
        here = [rank for rank in range(self._me.size) if self._channel.has(f"terminated/{rank}")]
        gone = sorted(set(range(self._me.size)) - set(here))
        if self._me.rank == min(here):
            what = f"{listed(gone)} of {self._me.size} ended without a word" if gone else "the launcher ended the job"
            self._end(Loss(what, self._crashes(), tuple(gone)))
        time.sleep(_GRACE_S)
        self._exit()

    def _exit(self) -> NoReturn:
        with contextlib.suppress(Exception):
            self._leave()
        _exit(_BROKEN)

    def _end(self, loss: Loss) -> None:
        if self._over.is_set():
            return
        if not self._channel.claim("reporter"):
            time.sleep(_GRACE_S)
            self._exit()
        self._tell(loss)
        sys.stdout.flush()
        sys.stderr.flush()
        self._channel.put("stop", b"")
        time.sleep(BEAT_S + _GRACE_S / 2)  # the rank that holds the store goes last
        self._exit()
