"""Forks and folders that lose no Ctrl-C.

What a signal raises in the callbacks that Python makes around a fork is swallowed, and what it raises while a folder is
made leaves the folder behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_held: dict[int, object] = {}
"""What was done with each signal before the block that goes on."""


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """What ends this process is heard when the block, which forks, is over. A fork does at once as this process did."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are heard in the main thread, wherever it is
        return
    heard: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    for number in ENDING:
        if signal.getsignal(number) not in (None, signal.SIG_IGN):
            _held[number] = signal.signal(number, remember)
    try:
        yield
    finally:
        _release()
        if heard:
            os.kill(os.getpid(), heard[0])


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder of ours that is gone after the block, also where a signal comes while it is made."""
    with contextlib.ExitStack() as stack:
        with signals_held():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix))
        yield Path(folder)


def _release() -> None:
    while _held:
        number, before = _held.popitem()
        signal.signal(number, before)  # type: ignore[arg-type]


os.register_at_fork(after_in_child=_release)
