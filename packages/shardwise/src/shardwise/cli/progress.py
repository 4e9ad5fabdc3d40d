"""How does a person know that a long check is alive? A moving line on a terminal, now and then a plain line elsewhere.

Everything goes to stderr, and nothing is said before a run has taken two seconds.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

QUIET_S = 2.0
PLAIN_EVERY_S = 10.0
MOVING_EVERY_S = 0.25


@contextlib.contextmanager
def progress(status: Callable[[], str], *, plain: bool = True, stream: TextIO | None = None) -> Iterator[None]:
    """Show ``status()`` on ``stream`` (stderr) while the block runs; ``plain``: also where it is no terminal."""
    stream = stream if stream is not None else sys.stderr
    moving = stream.isatty()
    if not moving and not plain:
        yield
        return
    done = threading.Event()
    started_s = time.monotonic()

    def text() -> str:
        return f"shardwise: {time.monotonic() - started_s:.0f} s, {status()}"

    def speak() -> None:
        if done.wait(QUIET_S):
            return
        if moving:
            _move(text, done, stream)
            return
        while True:
            print(text(), file=stream, flush=True)
            if done.wait(PLAIN_EVERY_S):
                return

    thread = threading.Thread(target=speak, name="shardwise-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _move(text: Callable[[], str], done: threading.Event, stream: TextIO) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots", text())
    # Redirecting is off: it would outlive the program's own redirection and swallow the report.
    console = Console(file=stream)
    with Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
        while not done.wait(MOVING_EVERY_S):
            spinner.update(text=text())
