"""Worker processes that end with the process that has started them, however that ends.

A worker of ``ProcessPoolExecutor`` waits for its next task on a pipe that it holds open itself, so it waits for ever
where its parent was killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Literal

LOOKS_EVERY_S = 0.5
_LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""


@contextlib.contextmanager
def worker_pool(
    count: int, method: Literal["fork", "spawn"], start: Callable[[], object] | None = None
) -> Iterator[ProcessPoolExecutor]:
    """``count`` workers, each of which calls ``start`` first; they are done at the end of the block."""
    context, begin = multiprocessing.get_context(method), (os.getpid(), start)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=begin) as pool:
        yield pool


def end_with_parent(parent: int = 0) -> None:
    """Have this process end when the one that has started it has ended; ``parent`` where it may have ended already."""
    threading.Thread(target=_end_with, args=(parent or os.getppid(),), daemon=True).start()


def _begin(parent: int, start: Callable[[], object] | None) -> None:
    end_with_parent(parent)
    if start is not None:
        start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOKS_EVERY_S)
    _LEAVE(1)
