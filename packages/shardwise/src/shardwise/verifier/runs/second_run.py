"""A job of launched ranks that draw batches of their own runs twice: the second time one rank gets what all have drawn.

Which batches there are is known once the ranks have run, and each rank then compares its copies with those of a run on
one rank that was given the same data. So every rank becomes the same command anew, in a second attempt of the job.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.interop.tensors.parcels import packed

from ..records.batches import Batches, merged

GLOBAL_BATCHES = "SHARDWISE_GLOBAL_BATCHES"
"""Set in a second attempt: the file of the batches, or nothing on ranks that record no references."""
MOST_BYTES = 1 << 28
"""How much of its batches a rank keeps, and how much all of them may be together."""
_OF_LAUNCHER = "TORCHELASTIC_USE_AGENT_STORE"


@dataclass(frozen=True)
class Attempt:
    """What the next attempt of the job is given.

    ``port``     where rank 0 listens: in the store of the first, addresses of its groups are left.
    ``batches``  of the run on one rank; nothing on ranks that do not record it.
    """

    port: int
    batches: bytes = b""


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
        environment = {**self.environment, "MASTER_PORT": str(attempt.port), _OF_LAUNCHER: "False", GLOBAL_BATCHES: ""}
        if attempt.batches:
            handle, environment[GLOBAL_BATCHES] = tempfile.mkstemp(prefix="shardwise-batches-")
            with os.fdopen(handle, "wb") as file:
                file.write(attempt.batches)
        os.chdir(self.folder)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(self.words[0], self.words, environment)


def is_second() -> bool:
    """Whether this process is a second attempt."""
    return GLOBAL_BATCHES in os.environ


def batches_file() -> str:
    """The file of the batches that this process's run on one rank is to get; empty without one."""
    return os.environ.get(GLOBAL_BATCHES, "")


def read_batches(file: str) -> Batches:
    """What ``Command.again`` has written. Errors: SW905 for a file that holds something else."""
    try:
        with open(file, "rb") as stream:
            batches = pickle.load(stream)
    except Exception as error:
        raise SpmdValueError(f"cannot read batches from {file}: {error}", code="SW905") from None
    if not isinstance(batches, Batches):
        raise SpmdValueError(f"{file} holds no batches", code="SW905")
    return batches


def forget_batches() -> None:
    """The run on one rank is over: its batches are needed no more."""
    if batches_file():
        with contextlib.suppress(OSError):
            os.unlink(batches_file())


def answer_with(batches: Batches) -> bytes:
    """A rank's batches for rank 0; nothing where there are none, too many, or some that cannot travel."""
    if batches.partial or not any(batches.drawn.values()):
        return b""
    with contextlib.suppress(Exception):  # pickling runs code of the program's classes
        return packed(batches)
    return b""


def together(own: Batches, size: int, ask: Callable[[int], bytes]) -> bytes:
    """The batches of all ranks as those of one, to be written; nothing where they make none, or too many."""
    answers, room = [answer_with(own)], MOST_BYTES
    for rank in range(size):
        if rank:
            answers.append(ask(rank))
        room -= len(answers[-1])
        if not answers[-1] or room < 0:
            return b""
    try:
        return packed(merged([pickle.loads(answer) for answer in answers]))
    except (SpmdValueError, AttributeError, pickle.PickleError):
        return b""
