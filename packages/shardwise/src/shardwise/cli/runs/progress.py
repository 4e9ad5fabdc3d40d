"""How does a person know that a long check is alive? A moving line on a terminal, now and then a plain line elsewhere.

Everything goes to stderr, and nothing is said before a run has taken two seconds. What the program under check prints
meanwhile pushes the moving line down and is never mixed with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

QUIET_S = 2.0
PLAIN_EVERY_S = 10.0
MOVING_EVERY_S = 0.25
CLEAR_LINE = "\r\x1b[2K"


@contextlib.contextmanager
def progress(status: Callable[[], str], *, plain: bool = True, stream: TextIO | None = None) -> Iterator[None]:
    """Show ``status()`` on ``stream`` (stderr) while the block runs; ``plain``: also where it is no terminal."""
    stream = stream if stream is not None else sys.stderr
    moving = stream.isatty() and os.environ.get("TERM") != "dumb"
    if not moving and not plain:
        yield
        return
    line = MovingLine(stream) if moving else None
    done = threading.Event()
    started_s = time.monotonic()

    def speak() -> None:
        if done.wait(QUIET_S):
            return
        while True:
            text = f"shardwise: {time.monotonic() - started_s:.0f} s, {status()}"
            if line is not None:
                line.show(text)
            else:
                print(text, file=stream, flush=True)
            if done.wait(MOVING_EVERY_S if moving else PLAIN_EVERY_S):
                return

    thread = threading.Thread(target=speak, name="shardwise-progress", daemon=True)
    thread.start()
    try:
        with contextlib.redirect_stderr(line) if line is not None else contextlib.nullcontext():
            yield
    finally:
        done.set()
        thread.join()
        if line is not None:
            line.clear()


class MovingLine:
    """A stream for the program's own output, with a line of ours below it that can be redrawn."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._shown = False
        self._at_line_start = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Program output: our line gives way."""
        with self._lock:
            self._clear()
            if text:
                self._at_line_start = text.endswith("\n")
            return self._stream.write(text)

    def show(self, text: str) -> None:
        """Redraw our line, unless the program has left a line unfinished."""
        with self._lock:
            if self._at_line_start:
                self._stream.write(CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])
                self._stream.flush()
                self._shown = True

    def clear(self) -> None:
        """Take our line away."""
        with self._lock:
            self._clear()
            self._stream.flush()

    def _clear(self) -> None:
        if self._shown:
            self._stream.write(CLEAR_LINE)
            self._shown = False
