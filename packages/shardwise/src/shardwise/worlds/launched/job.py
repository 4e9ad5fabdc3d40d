"""What do launched ranks do together? Rank 0 gathers what each has, asks for more of it, and says how all end."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from shardwise.host.launcher import LaunchedRank
from shardwise.interop.tensors.parcels import packed

from .channel import Channel
from .watch import Loss, Watch

_PATIENCE_S = 86_400.0
"""The watch ends a job that takes too long; whoever waits for a message need not."""


class LaunchedJob:
    """The job that this process is rank ``me`` of.

    ``timeout_s``  for each part of it.
    ``tell``       writes the report of a loss, on the one rank that is to.
    """

    def __init__(self, me: LaunchedRank, timeout_s: float, tell: Callable[[Loss], None]) -> None:
        self.me = me
        self.channel = Channel()
        self.leaving: list[Callable[[], object]] = []
        """What is done at the end of the job, the last first; also where a loss ends this process wherever it is."""
        self._watch = Watch(me, timeout_s, tell, self._leave)
        self._asked = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside the block a rank that is lost ends the job with a report; however it ends, ``leaving`` is done."""
        try:
            with self._watch.watching():
                yield
        finally:
            self._leave()

    def _leave(self) -> None:
        while self.leaving:
            one = self.leaving.pop()
            with contextlib.suppress(Exception):
                one()

    def crashed(self, crash: object) -> None:
        """This rank's program has raised: the job ends, and this does not return."""
        self._watch.crashed(crash)

    def next_part(self) -> None:
        """Another part of the job begins, which has its own time."""
        self._watch.restart_clock()

    def gather(self, name: str, value: object) -> Iterator[Any]:
        """What every rank gives, in rank order and one at a time, on rank 0; nothing elsewhere."""
        if self.me.rank != 0:
            self.channel.put(f"{name}/{self.me.rank}", packed(value))
            self.channel.put(f"ended/{self.me.rank}", b"")
            return
        self.channel.put("ended/0", b"")
        yield value
        for rank in range(1, self.me.size):
            yield pickle.loads(self.channel.get(f"{name}/{rank}", _PATIENCE_S, last=True))

    def gather_shared(self, name: str, value: object) -> Iterator[object]:
        """Like ``gather``, where many ranks give the same: it travels once, and is one object on rank 0."""
        message = packed(value)
        digest = hashlib.blake2b(message, digest_size=16).hexdigest()
        if self.channel.claim(f"{name}/{digest}/first"):
            self.channel.put(f"{name}/{digest}", message)
        if self.me.rank != 0:
            self.channel.put(f"{name}/{self.me.rank}", digest.encode())
            return
        known: dict[str, Any] = {}
        for rank in range(self.me.size):
            one = self.channel.get(f"{name}/{rank}", _PATIENCE_S, last=True).decode() if rank else digest
            if one not in known:
                known[one] = pickle.loads(self.channel.get(f"{name}/{one}", _PATIENCE_S, last=True))
            yield known[one]

    def ask(self, rank: int, question: object) -> object:
        """On rank 0: what ``rank`` answers, while it serves."""
        self._asked += 1
        self.channel.put(f"question/{rank}", pickle.dumps((self._asked, question)))
        return pickle.loads(self.channel.get(f"answer/{self._asked}", _PATIENCE_S, last=True))

    def serve(self, answer: Callable[[object], object]) -> Any:
        """On every other rank: answer what rank 0 asks, until it says how the job ends; that is returned."""
        while True:
            name = self.channel.wait_for((f"question/{self.me.rank}", "end"), _PATIENCE_S)
            if name == "end":
                return pickle.loads(self.channel.get("end", _PATIENCE_S))
            number, question = pickle.loads(self.channel.get(name, _PATIENCE_S, last=True))
            self.channel.put(f"answer/{number}", pickle.dumps(answer(question)))

    def end(self, ending: object) -> None:
        """On rank 0: say how the job ends, and stay until all have heard: this process may hold the store."""
        self.channel.put("end", pickle.dumps(ending))
        for rank in range(1, self.me.size):
            self.channel.get(f"heard/{rank}", _PATIENCE_S)

    def heard(self) -> None:
        """On every other rank: the end was heard."""
        self.channel.put(f"heard/{self.me.rank}", b"")
