"""Which rank runs now? One at a time; it keeps its turn until it waits, and then the next that can go on has it.

The order depends on the program alone: after rank r comes the first of r + 1, r + 2, ... that can go on. So results,
prints and random numbers are the same in every run, and that no rank can go on is seen the moment it is so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Abandoned(BaseException):
    """Unwinds the program of a rank that will never go on. Not an ``Exception``: programs catch those."""


class Turns:
    """``size`` threads that take turns.

    ``on_stuck``   called, with nobody else running, when no rank can go on and some have not ended.
    ``suspend``    called with the rank that loses its turn, ``resume`` with the one that gets it.
    """

    def __init__(
        self, size: int, *, on_stuck: Callable[[], None], suspend: Callable[[int], None], resume: Callable[[int], None]
    ) -> None:
        self.size = size
        self.running: int | None = None
        self.over = threading.Event()
        self._on_stuck, self._suspend, self._resume = on_stuck, suspend, resume
        self._gates = [threading.Semaphore(0) for _ in range(size)]
        self._waits_for: list[Callable[[], bool] | None] = [None] * size
        self._ended = [False] * size
        self._abandoned = False

    def begin(self) -> None:
        """Give rank 0 the first turn."""
        self._hand_over(self.size - 1)

    def attend(self, rank: int) -> None:
        """Wait for the first turn. Every thread starts with this. Raises Abandoned if there will be none."""
        self._take(rank)

    def end(self, rank: int) -> None:
        """Give up the turn for good."""
        self._ended[rank] = True
        self._suspend(rank)
        self._hand_over(rank)

    def wait_until(self, rank: int, ready: Callable[[], bool]) -> None:
        """Let others run until ``ready()``. Raises Abandoned if that will never be."""
        if self._abandoned:
            raise Abandoned
        if ready():
            return
        self._waits_for[rank] = ready
        self._yield(rank)

    def offer(self, rank: int) -> None:
        """Let others run that can, and come back."""
        if self._abandoned:
            raise Abandoned
        self._yield(rank)

    def abandon(self) -> None:
        """Unwind every rank where it waits, or where it will wait next."""
        self._abandoned = True

    def _yield(self, rank: int) -> None:
        self._suspend(rank)
        self._hand_over(rank)
        self._take(rank)

    def _take(self, rank: int) -> None:
        self._gates[rank].acquire()
        self._waits_for[rank] = None
        self.running = rank
        if self._abandoned:
            raise Abandoned  # without ``resume``: whoever has abandoned the world may have gone on
        self._resume(rank)

    def _hand_over(self, rank: int) -> None:
        following = self._next(rank)
        if following is None and not all(self._ended):
            self._on_stuck()
            self.abandon()
            following = self._next(rank)
        if following is None:
            self.running = None
            self.over.set()
        else:
            self._gates[following].release()

    def _next(self, rank: int) -> int | None:
        for step in range(1, self.size + 1):
            other = (rank + step) % self.size
            if self._ended[other]:
                continue
            ready = self._waits_for[other]
            if self._abandoned or ready is None or ready():
                return other
        return None
