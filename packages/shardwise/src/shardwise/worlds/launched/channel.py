"""How do launched ranks exchange messages? By the key-value store of their launcher, beside the program's own groups.

The program makes and destroys its process groups as it likes, and a rank that waits in one of their collectives can
still be asked where it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

PIECE_BYTES = 1 << 23
"""What one entry of the store holds at most; longer messages are cut."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.002, 0.2


class NoAnswer(TimeoutError):
    """Nobody has put what was waited for."""


class Channel:
    """A connection to the store; every thread needs its own.

    ``received_bytes``  of messages, for the report.
    """

    def __init__(self) -> None:
        run = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store, _, _ = next(rendezvous("env://"))
        self._store: Any = dist.PrefixStore(f"shardwise/{run}", store)  # type: ignore[attr-defined]
        self.received_bytes = 0

    def put(self, name: str, message: bytes) -> None:
        """Leave ``message`` under ``name`` for whoever wants it."""
        pieces = [message[at : at + PIECE_BYTES] for at in range(0, len(message), PIECE_BYTES)] or [b""]
        for at, piece in enumerate(pieces):
            self._store.set(f"{name}/{at}", piece)
        self._store.set(name, str(len(pieces)))

    def has(self, name: str) -> bool:
        """Whether there is a message under ``name``."""
        return bool(self._store.check([name]))

    def get(self, name: str, timeout_s: float, *, last: bool = False) -> bytes:
        """The message under ``name``, waited for; with ``last`` nobody else wants it. Errors: NoAnswer."""
        self.wait_for((name,), timeout_s)
        count = int(self._store.get(name))
        message = b"".join(self._store.get(f"{name}/{at}") for at in range(count))
        if last:
            for key in (*(f"{name}/{at}" for at in range(count)), name):
                self._store.delete_key(key)
        self.received_bytes += len(message)
        return message

    def note(self, name: str, text: str) -> None:
        """Leave a word that is written over again and again."""
        self._store.set(name, text)

    def noted(self, name: str) -> bytes | None:
        """The last word under ``name``; None before the first."""
        return self._store.get(name) if self.has(name) else None

    def claim(self, name: str) -> bool:
        """True for the first rank that asks."""
        return int(self._store.add(name, 1)) == 1

    def wait_for(self, names: Sequence[str], timeout_s: float) -> str:
        """The first of ``names`` under which there is a message. Errors: NoAnswer."""
        deadline, pause_s = time.monotonic() + timeout_s, _FIRST_WAIT_S
        while True:
            for name in names:
                if self.has(name):
                    return name
            if time.monotonic() > deadline:
                raise NoAnswer(f"no {' or '.join(names)} within {timeout_s:g} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_WAIT_S)
