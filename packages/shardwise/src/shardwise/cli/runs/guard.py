"""What if the program takes its process with it: abort, a segmentation fault? The command goes on in a fork of itself.

The fork does everything and tells of each finding as it comes; this process only waits, passes signals on and hands on
the exit code. If the fork dies of a signal, what it has told until then is the result. If this process dies, so does
the fork.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from shardwise.diagnostics.finding import Finding

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
LAST_WORDS_S = 2.0
COUNTED_EVERY_S = 0.25
LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""
OWN_PROCESS = "own process"
"""What click's context holds where the command was started as a process, and not called by another program."""


@dataclass(frozen=True)
class Death:
    """The fork has died of signal ``name``, after it had told of ``findings`` and of so many operations."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    checked: int = 0


class _Fork:
    """The way from the fork to the process that waits."""

    pipe: BinaryIO | None = None
    number = 0
    """Its process id: ranks that it starts in processes of their own tell it, and not the process that waits."""
    speaking = threading.Lock()
    checked: Callable[[], int] | None = None


def guarded() -> Death | None:
    """Go on in a fork, where this gives None. Here it gives the fork's death, or exits as the fork has exited."""
    if not hasattr(signal, "sigwaitinfo"):
        return None
    sys.stdout.flush()
    sys.stderr.flush()
    told, telling = os.pipe()
    lifeline, held = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    fork = os.fork()
    if fork == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(told)
        os.close(held)
        _Fork.pipe, _Fork.number = os.fdopen(telling, "wb"), os.getpid()
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        return None
    os.close(telling)
    os.close(lifeline)
    found: list[Finding | int] = []
    hearing = threading.Thread(target=_hear, args=(told, found), daemon=True)
    hearing.start()
    status = _wait_for(fork)
    if not os.WIFSIGNALED(status):
        sys.stdout.flush()
        os._exit(os.waitstatus_to_exitcode(status))
    hearing.join(timeout=LAST_WORDS_S)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    findings = [one for one in found if isinstance(one, Finding)]
    counts = [one for one in found if isinstance(one, int)]
    return Death(signal.Signals(os.WTERMSIG(status)).name, findings, max(counts, default=0))


def _wait_for(fork: int) -> int:
    """The status with which the fork has ended. A signal that was sent here is passed on to it."""
    while True:
        heard = signal.sigwaitinfo(HEARD)
        if heard.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(fork, os.WNOHANG)
            if ended:
                return status
        elif heard.si_code <= 0:  # by another process; what the terminal sends has reached the fork as well
            os.kill(fork, heard.si_signo)


def tell(what: Finding | int) -> None:
    """Say so to the process that waits, if there is one."""
    if _Fork.pipe is not None and _Fork.number == os.getpid():
        with _Fork.speaking:
            pickle.dump(what, _Fork.pipe)
            _Fork.pipe.flush()


def counting(checked: Callable[[], int]) -> None:
    """``checked`` is the number of operations checked so far, to be asked from time to time."""
    _Fork.checked = checked


def _hear(told: int, found: list[Finding | int]) -> None:
    with os.fdopen(told, "rb") as pipe, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            found.append(pickle.load(pipe))


def _end_with(lifeline: int) -> None:
    before = 0
    while not select.select([lifeline], [], [], COUNTED_EVERY_S)[0]:
        count = 0 if _Fork.checked is None else _Fork.checked()
        if count != before:
            before = count
            tell(count)
    LEAVE(1)  # the other end has closed, which is when its process is gone
