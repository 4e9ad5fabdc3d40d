"""What if the program takes its process with it: abort, a segmentation fault? The command goes on in a fork of itself.

The fork does everything, tells of each finding as it comes, and last of all that it has said everything; this process
only waits, passes signals on and hands on the exit code. If the fork ends in any other way, by a signal or because C
code of the program calls ``exit``, what it has told until then is the result. If this process dies, so does the fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import mmap
import os
import pickle
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import BinaryIO

from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.printing.printable import clean
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.host.blame import PACKAGE
from shardwise.host.overlay import is_of_library

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
LAST_WORDS_S = 2.0
COUNTED_EVERY_S = 0.25
THREADS_END_WITHIN_S = 5.0
LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""
_SAID, _FAILED = 1, 255
OWN_PROCESS = "own process"
"""What click's context holds where the command was started as a process, and not called by another program."""
_OUT_OF_THE_WAY = 512
"""From here on is the number of the file that a crash is written to: nobody has it, even if the program closes all."""
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True)
class Death:
    """The fork has ended before it reported: ``how``, after it had told of ``findings`` and of so many operations.

    ``location``  the line of the program that ran, if that is known.
    """

    how: str
    findings: list[Finding] = field(default_factory=list)
    checked: int = 0
    location: SourceLocation | None = None


class _Fork:
    """The way from the fork to the process that waits."""

    pipe: BinaryIO | None = None
    pipe_itself = 0
    """Its inode: a program that closes every file and opens others may have given the number away."""
    number = 0
    """Its process id: ranks that it starts in processes of their own tell it, and not the process that waits."""
    speaking = threading.Lock()
    outcome = mmap.mmap(-1, 1)
    """A byte that both see, whichever files the program closes: 0, or ``_SAID`` and the exit code, or ``_FAILED``."""
    checked: Callable[[], int] | None = None


def ends_by_request() -> None:
    """From here on a request to terminate (a closed terminal, a job at its end) is to this process what Ctrl-C is, so
    that no temporary file stays. What it forks dies of the request, as if nothing had been said here.
    """
    asked = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == asked:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, end)


def dies_by_request() -> None:
    """What serves a client over standard input has nothing to clear up, and threads that wait for its next line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def guarded() -> Death | None:
    """Go on in a fork, where this gives None. Here it gives the fork's death, or exits as the fork has exited."""
    if not hasattr(signal, "sigwaitinfo"):
        return None
    sys.stdout.flush()
    sys.stderr.flush()
    told, telling = os.pipe()
    lifeline, held = os.pipe()
    crash = os.memfd_create("crash")
    _Fork.outcome = mmap.mmap(-1, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    fork = os.fork()
    if fork == 0:
        ends_by_request()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(told)
        os.close(held)
        _Fork.pipe, _Fork.number = os.fdopen(telling, "wb"), os.getpid()
        _Fork.pipe_itself = os.fstat(telling).st_ino
        threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
        with contextlib.suppress(OSError, ValueError):
            faulthandler.enable(fcntl.fcntl(crash, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY), all_threads=False)
        os.close(crash)
        return None
    os.close(telling)
    os.close(lifeline)
    found: list[Finding | int] = []
    hearing = threading.Thread(target=_hear, args=(told, found), daemon=True)
    hearing.start()
    code = os.waitstatus_to_exitcode(_wait_for(fork))
    said = _Fork.outcome[0]
    if said not in (0, _FAILED):
        sys.stdout.flush()
        os._exit(said - _SAID)
    hearing.join(timeout=LAST_WORDS_S)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    findings = [one for one in found if isinstance(one, Finding)]
    counts = [one for one in found if isinstance(one, int)]
    return Death(_how(code, said == _FAILED), findings, max(counts, default=0), _line_of(crash))


def _how(code: int, failed: bool) -> str:
    """How the fork has ended without a report, as a continuation of "the program"."""
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return "ended because shardwise failed" if failed else f"left its process with exit code {code}, past Python"


def _line_of(crash: int) -> SourceLocation | None:
    """The program's innermost line on the stack that was written when its process died of what its own code did."""
    stack = os.pread(crash, 1 << 20, 0).decode(errors="replace").rpartition("Fatal Python error")[2]
    os.close(crash)
    for file, line, function in _FRAME.findall(stack):
        if os.path.isfile(file) and not is_of_library(file) and not file.startswith(PACKAGE):
            return SourceLocation(file, int(line), function=function)
    return None


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


def end(code: int) -> None:
    """Everything has been said, and the command ends with ``code``, whatever the program has left in its way.

    Threads of the program that go on are told, and not waited for, where Python would never end.
    """
    if not _is_fork():
        return
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    _Fork.outcome[0] = _SAID + code
    until = time.monotonic() + THREADS_END_WITHIN_S
    left = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    names = ", ".join(clean(str(one.name)) for one in left if one.is_alive())
    if names:
        with contextlib.suppress(Exception):
            print(f"shardwise: not waited for threads that the program has left running: {names}", file=sys.stderr)
            sys.stderr.flush()
        LEAVE(code)


def failed() -> bool:
    """There is no report, so that the process that waits has to say what it was told. False if none waits."""
    if _is_fork():
        _Fork.outcome[0] = _FAILED
    return _is_fork()


def _is_fork() -> bool:
    return _Fork.number == os.getpid()


def tell(what: Finding | int) -> None:
    """Say so to the process that waits, if there is one."""
    if _Fork.pipe is not None and _is_fork():
        with _Fork.speaking, contextlib.suppress(OSError):
            if os.fstat(_Fork.pipe.fileno()).st_ino == _Fork.pipe_itself:
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
    while not _is_closed(lifeline):
        count = 0 if _Fork.checked is None else _Fork.checked()
        if count != before:
            before = count
            tell(count)
    LEAVE(1)  # the other end has closed, which is when its process is gone


def _is_closed(lifeline: int) -> bool:
    """Has the other end been closed, after a while in which it was not? Where the program has closed this end, no."""
    try:
        return bool(select.select([lifeline], [], [], COUNTED_EVERY_S)[0])
    except (OSError, ValueError):
        time.sleep(COUNTED_EVERY_S)
        return False
