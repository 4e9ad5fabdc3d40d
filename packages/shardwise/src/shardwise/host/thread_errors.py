"""Which frames are shown of an exception that ends a thread of the program? Its own, as of one that ends all of it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from shardwise.diagnostics.error_text import own_traceback
from shardwise.diagnostics.printing.printable import clean

from .attribute_patch import patched


@contextlib.contextmanager
def thread_errors_of_own_frames() -> Iterator[None]:
    """Inside the ``with`` block such an exception is printed without frames of ours; the program may say otherwise."""
    plain = threading.excepthook

    def shown(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is None or issubclass(ended.exc_type, SystemExit) or sys.stderr is None:
            plain(ended)
            return
        name = "" if ended.thread is None else f" {clean(str(ended.thread.name))}"
        sys.stderr.write(f"Exception in thread{name}:\n{own_traceback(ended.exc_value)[0]}")
        sys.stderr.flush()

    with patched(threading, "excepthook", shown):
        yield
