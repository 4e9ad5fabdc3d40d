"""A job of launched ranks that draw batches or random numbers of their own runs twice: the second time one rank gets
what all have drawn.

What they draw is known once the ranks have run, and each rank then compares its copies with those of a run on one rank
that was given the same. So every rank becomes the same command anew, in a second attempt of the job.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.interop.tensors.parcels import packed

from ..records.batches import Batches, merged
from ..records.draws import Draws

DRAWN = "SHARDWISE_DRAWN"
"""Set in a second attempt: the file of what all ranks have drawn, or nothing on ranks that record no references."""
MOST_BYTES = 1 << 28
"""How much of what it draws a rank keeps, batches and states of generators each, and how much all may be together."""
_OF_LAUNCHER = "TORCHELASTIC_USE_AGENT_STORE"


@dataclass(frozen=True)
class DrawnData:
    """What a rank has drawn, or what all have: ``batches`` of loaders, and how each rank drew random numbers."""

    batches: Batches = field(default_factory=Batches)
    draws: tuple[Draws, ...] = ()

    def __bool__(self) -> bool:
        return any(self.batches.drawn.values()) or any(self.draws)


@dataclass(frozen=True)
class Attempt:
    """What the next attempt of the job is given.

    ``port``   where rank 0 listens: in the store of the first, addresses of its groups are left.
    ``drawn``  what the run on one rank is given; nothing on ranks that do not record it.
    """

    port: int
    drawn: bytes = b""


@dataclass(frozen=True)
class Command:
    """How this process was started, before the program has run in it."""

    words: tuple[str, ...]
    folder: str
    environment: dict[str, str]

    @classmethod
    def own(cls) -> Command:
        """That of this process, now."""
        return cls((sys.executable, *sys.orig_argv[1:]), os.getcwd(), dict(os.environ))

    def again(self, attempt: Attempt) -> NoReturn:
        """Become the command anew, in the next attempt of the job."""
        environment = {**self.environment, "MASTER_PORT": str(attempt.port), _OF_LAUNCHER: "False", DRAWN: ""}
        if attempt.drawn:
            handle, environment[DRAWN] = tempfile.mkstemp(prefix="shardwise-drawn-")
            with os.fdopen(handle, "wb") as file:
                file.write(attempt.drawn)
        os.chdir(self.folder)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(self.words[0], self.words, environment)


def is_second() -> bool:
    """Whether this process is a second attempt."""
    return DRAWN in os.environ


def drawn_file() -> str:
    """The file of what this process's run on one rank is to get; empty without one."""
    return os.environ.get(DRAWN, "")


def read_drawn(file: str) -> DrawnData:
    """What ``Command.again`` has written. Errors: SW905 for a file that holds something else."""
    try:
        with open(file, "rb") as stream:
            drawn = pickle.load(stream)
    except Exception as error:
        raise SpmdValueError(f"cannot read what ranks have drawn from {file}: {error}", code="SW905") from None
    if not isinstance(drawn, DrawnData):
        raise SpmdValueError(f"{file} does not hold what ranks have drawn", code="SW905")
    return drawn


def forget_drawn() -> None:
    """The run on one rank is over: what it was given is needed no more."""
    if drawn_file():
        with contextlib.suppress(OSError):
            os.unlink(drawn_file())


def answer_with(drawn: DrawnData) -> bytes:
    """What a rank has drawn, for rank 0; nothing where that is too much, or cannot travel."""
    if drawn.batches.partial:
        return b""
    with contextlib.suppress(Exception):  # pickling runs code of the program's classes
        return packed(drawn)
    return b""


def together(own: DrawnData, size: int, ask: Callable[[int], bytes]) -> bytes:
    """What all ranks have drawn, to be written; nothing where that is nothing, too much, or makes no global batches."""
    answers, room = [answer_with(own)], MOST_BYTES
    for rank in range(size):
        if rank:
            answers.append(ask(rank))
        room -= len(answers[-1])
        if not answers[-1] or room < 0:
            return b""
    try:
        ranks: list[DrawnData] = [pickle.loads(answer) for answer in answers]
        if not any(ranks):
            return b""
        draws = tuple(draws for rank in ranks for draws in rank.draws)
        return packed(DrawnData(merged([rank.batches for rank in ranks]), draws))
    except (SpmdValueError, AttributeError, pickle.PickleError):
        return b""
