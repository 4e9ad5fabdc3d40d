"""Have processes that wait for each other come to a standstill? No thread of theirs has run for a while, and all could.

Linux counts how often a thread was given a processor (proc(5): the third number of ``schedstat``). gloo's own threads
ask a hundred times a second whether anything has come; that they ran and nothing else did shows that nothing was under
way. So a machine that is busy with other things delays the answer and does not change it. A program that sleeps for as
long, or waits for something outside, looks the same.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path

_ASKING = "gloo_tcp_loop"
_ROUNDS = 10
"""So often at least every thread of gloo's has run in the meantime."""

_Thread = tuple[int, int]


class Standstill:
    """Whether no thread of ``processes``, or of their children, has run for ``still_s`` seconds."""

    def __init__(self, processes: Collection[int], still_s: float) -> None:
        self._processes, self._still_s = processes, still_s
        self._since_s = time.monotonic()
        self._rounds: dict[_Thread, int] = {}
        self._working: dict[_Thread, int] | None = None

    def reached(self) -> bool:
        """To be asked every now and then. False where the system does not count."""
        now_s = time.monotonic()
        try:
            working, asking, waits_for_processor = self._look()
        except OSError:  # a thread has ended while we looked, or nothing is counted here
            working, asking, waits_for_processor = {}, {}, True
        if waits_for_processor or working != self._working:
            self._working, self._rounds, self._since_s = working, asking, now_s
            return False
        rounds = (count - self._rounds.get(thread, 0) for thread, count in asking.items())
        return now_s - self._since_s >= self._still_s and min(rounds, default=0) >= _ROUNDS

    def _look(self) -> tuple[dict[_Thread, int], dict[_Thread, int], bool]:
        """How often each thread has run, those of gloo's apart; whether one of the others runs, or could."""
        working: dict[_Thread, int] = {}
        asking: dict[_Thread, int] = {}
        runnable = False
        for process, thread, folder in self._threads():
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            count = int((folder / "schedstat").read_text().split()[2])
            if name == _ASKING:
                asking[process, thread] = count
            else:
                working[process, thread] = count
                runnable |= rest.split()[0] not in "SZX"
        return working, asking, runnable

    def _threads(self) -> Iterator[tuple[int, int, Path]]:
        waiting = list(self._processes)
        while waiting:
            process = waiting.pop()
            try:
                folders = list(Path(f"/proc/{process}/task").iterdir())
            except OSError:  # it has ended
                continue
            for folder in folders:
                yield process, int(folder.name), folder
                waiting += map(int, (folder / "children").read_text().split())
