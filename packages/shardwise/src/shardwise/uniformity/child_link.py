"""The way from the process of a rank to the one that brings the ranks' calls together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from shardwise.diagnostics.finding import Finding

from .calls import CutOff, TracedCall, Wait
from .expressions import EqualValue

CUT = "cut"
"""The answer to a rank that is not followed any more."""


class ChildLink:
    """The way from a rank's process to the one that compares; a ``collective_trace.Link``."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._count = 0
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        self._answers: dict[int, object] = {}
        self._answered = threading.Condition()
        self._listens = False
        self.cut = False

    def post(self, event: TracedCall | Wait, parcel: bytes | None = None, fetches: bool = False) -> int:
        """Tell of an event; its position in the trace."""
        with self._lock:
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
            self._pipe.send(("post", event, parcel, fetches, thread))
            self._count += 1
            return self._count - 1

    def fetch(self, position: int) -> Mapping[int, bytes] | None:
        """What the ranks that meet in this call have handed in. Errors: CutOff if they never will.

        Each thread of a program waits for its own calls, as one that writes checkpoints does beside the training.
        """
        answer: object = CUT
        if not self.cut:
            with self._lock:
                self._pipe.send(("fetch", position))
            answer = self._answer_to(position)
        if answer == CUT:
            self.cut = True
            raise CutOff
        return answer  # type: ignore[return-value]

    def _answer_to(self, position: int) -> object:
        """One of the threads that wait listens for all of them."""
        with self._answered:
            while position not in self._answers:
                if self._listens:
                    self._answered.wait()
                    continue
                self._listens = True
                self._answered.release()
                try:
                    heard = self._pipe.recv()
                finally:
                    self._answered.acquire()
                    self._listens = False
                    self._answered.notify_all()
                self._answers.update([heard])
            return self._answers.pop(position)

    def mesh(self, sizes: Sequence[int]) -> None:
        """The program has made a mesh."""
        with self._lock:
            self._pipe.send(("mesh", tuple(sizes)))

    def tell(self, what: EqualValue | Finding) -> None:
        """Something that is known of this rank, for the end."""
        with self._lock:
            self._pipe.send(("told", what))
