"""A process in which no program has run, kept for calls that need one.

A program leaves process groups, modules and replaced functions behind. To start Python for the next run is to import
torch again, 3 s of the processor; a fork from before the first run has all of it. It forks for every call, so that it
stays as it is.

It is nobody's child, so a program that waits for all of its children does not wait for it. It ends when whoever keeps
it ends, however that ends, or needs it no more.
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
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from .worker_pool import LOOKS_EVERY_S, worker_pool

_Result = TypeVar("_Result")
_Answer = tuple[object, BaseException | None]
"""What a call has returned, or raised."""
_LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""
_LENGTH = 8
"""Bytes before a request or an answer that say how long it is."""


class KeptProcess:
    """The way to the process; without one, a new Python is started for every call."""

    def __init__(self) -> None:
        self._asking: _End | None = None
        self._answered: _End | None = None

    def fork(self) -> None:
        """Keep a process as this one is now."""
        asked, asking = os.pipe()
        answered, answering = os.pipe()
        keeper = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12 warns about forks of processes with threads; ours hold nothing that the fork waits for.
            warnings.simplefilter("ignore", DeprecationWarning)
            between = os.fork()
        if between == 0:
            try:
                if os.fork() == 0:
                    os.close(asking)
                    os.close(answered)
                    _serve(keeper, asked, answering)
            finally:
                _LEAVE(0)
        os.waitpid(between, 0)
        os.close(asked)
        os.close(answering)
        self._asking, self._answered = _End(asking), _End(answered)

    def call(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """What ``function`` returns there, or raises. Arguments and result travel by pickle.

        Errors: BrokenProcessPool if the call takes its process with it.
        """
        answer = self._asked(pickle.dumps((function, arguments)))
        if answer is None:
            with worker_pool(1, "spawn") as pool:
                return pool.submit(function, *arguments).result()
        came, error = answer
        if error is not None:
            raise error
        return cast("_Result", came)

    def _asked(self, request: bytes) -> _Answer | None:
        """The answer of the kept process; None if there is no process, or no answer."""
        asking, answered = self._asking, self._answered
        if asking is None or answered is None or not (asking.is_open and answered.is_open):
            return None
        try:
            _send(asking.number, request)
            came = _received(answered.number)
        except OSError:
            came = b""
        answer: _Answer | None = pickle.loads(came) if came else None
        return answer

    def close(self) -> None:
        """The process is needed no more."""
        for end in (self._asking, self._answered):
            if end is not None and end.is_open:
                os.close(end.number)
        self._asking = self._answered = None


class _End:
    """An end of a pipe, by the number of its file; a program may close every file and open others."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._itself = os.fstat(number).st_ino

    @property
    def is_open(self) -> bool:
        try:
            return os.fstat(self.number).st_ino == self._itself
        except OSError:
            return False


@contextlib.contextmanager
def kept_process(*, wanted: bool) -> Iterator[KeptProcess]:
    """A process as this one is now, until the end of the block; none that is kept where it is not ``wanted``."""
    kept = KeptProcess()
    if wanted and hasattr(os, "fork"):
        kept.fork()
    try:
        yield kept
    finally:
        kept.close()


def _serve(keeper: int, asked: int, answering: int) -> None:
    """Answer every request in a fork, until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        while not select.select([asked], [], [], LOOKS_EVERY_S)[0]:
            _leave_without(keeper)
        request = _received(asked)
        if not request:
            return
        fork = os.fork()
        if fork == 0:
            _answer(keeper, request, answering)
            _LEAVE(0)
        if os.waitpid(fork, 0)[1]:
            _send(answering, b"")


def _answer(keeper: int, request: bytes, answering: int) -> None:
    threading.Thread(target=_end_with, args=(keeper,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    function, arguments = pickle.loads(request)
    answer: _Answer
    try:
        answer = function(*arguments), None
    except BaseException as error:
        answer = None, error
    sys.stdout.flush()
    sys.stderr.flush()
    _send(answering, pickle.dumps(answer))


def _send(number: int, data: bytes) -> None:
    with os.fdopen(number, "wb", closefd=False) as pipe:
        pipe.write(len(data).to_bytes(_LENGTH, "little") + data)


def _received(number: int) -> bytes:
    """The next piece; nothing where the other end is closed, which children of a program may hold open as well."""
    with os.fdopen(number, "rb", buffering=0, closefd=False) as pipe:
        data = bytearray()
        wanted = _LENGTH
        while len(data) < wanted:
            more = pipe.read(wanted - len(data))
            if not more:
                return b""
            data += more
            if len(data) == wanted == _LENGTH:
                wanted += int.from_bytes(data, "little")
    return bytes(data[_LENGTH:])


def _end_with(keeper: int) -> None:
    while True:
        _leave_without(keeper)
        time.sleep(LOOKS_EVERY_S)


def _leave_without(keeper: int) -> None:
    try:
        os.kill(keeper, 0)
    except OSError:
        _LEAVE(1)
