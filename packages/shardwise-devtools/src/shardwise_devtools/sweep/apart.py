"""How are many tasks run so that none can harm the others? Each in a process of its own, a few at a time.

A task that crashes its process (kernels that trust their indices do) or does not end is given up, and the rest go on.
What counts is the processor time that a task takes itself, so that none is given up for what else the machine does.
"""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context
from time import monotonic
from typing import Any, Generic, TypeVar

BROKEN = "the sweep itself fails"
"""How the reason begins where ``run`` raised."""
WAITING = 20
"""A task that waits, and takes no processor time, has this many times as long."""
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A task without a result, and why."""

    reason: str


class _Running(Generic[Task]):
    def __init__(self, at: int, run: Callable[[Task], Any], task: Task, timeout_s: float) -> None:
        fork = get_context("fork")
        self.at = at
        self.deadline = monotonic() + timeout_s * WAITING
        self.pipe, sender = fork.Pipe(duplex=False)
        self.process = fork.Process(target=_send, args=(sender, run, task, timeout_s), daemon=True)
        self.process.start()
        sender.close()

    def end(self, timeout_s: float) -> Any:
        """The task's result; GivenUp if it has none."""
        try:
            if self.pipe.poll():
                return self.pipe.recv()
            return GivenUp(f"not done within {timeout_s:g} s")
        except EOFError:
            self.process.join()
            late = self.process.exitcode == -signal.SIGPROF
            return GivenUp(f"not done within {timeout_s:g} s" if late else "crashes the process")
        finally:
            self.process.kill()
            self.process.join()
            self.pipe.close()


def run_apart(
    run: Callable[[Task], Result], tasks: Sequence[Task], *, jobs: int, timeout_s: float
) -> Iterator[Result | GivenUp]:
    """``run`` of every task, in the order of the tasks; one that it raises for is given up too.

    ``timeout_s``  processor time of one task.
    """
    done: dict[int, Any] = {}
    running: list[_Running[Task]] = []
    started = 0
    try:
        for at in range(len(tasks)):
            while at not in done:
                while len(running) < jobs and started < len(tasks):
                    running.append(_Running(started, run, tasks[started], timeout_s))
                    started += 1
                ready = connection.wait([one.pipe for one in running], timeout=1.0)
                for one in [one for one in running if one.pipe in ready or monotonic() > one.deadline]:
                    done[one.at] = one.end(timeout_s)
                    running.remove(one)
            yield done.pop(at)
    finally:
        for one in running:
            one.end(timeout_s)


def _send(sender: Any, run: Callable[[Task], Any], task: Task, timeout_s: float) -> None:
    faulthandler.disable()  # a crash is a result here; its stack on stderr would only alarm
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, timeout_s)
    try:
        result: Any = run(task)
    except Exception as error:
        result = GivenUp(f"{BROKEN}: {type(error).__name__}: {error}")
    sender.send(result)
