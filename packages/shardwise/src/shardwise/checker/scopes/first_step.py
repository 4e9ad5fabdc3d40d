"""Checking that ends by itself: ``SHARDWISE_FIRST_STEP=1`` leaves ``typecheck`` on until the first optimizer step.

For a real job: what is found in the first step is reported on stderr and the job goes on, without the mode, the patches
and the hooks, so that later steps cost nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import Collector
from shardwise.diagnostics.text import render_result
from shardwise.interop.torch_compat import function_modes

VARIABLE = "SHARDWISE_FIRST_STEP"

Enter = Callable[[Collector], contextlib.AbstractContextManager[Any]]


class _Job:
    """Whether the first step of this process has been checked."""

    over = False


def is_asked_for() -> bool:
    """Only the first step is to be checked."""
    return os.environ.get(VARIABLE) == "1"


@contextlib.contextmanager
def first_step_checked(enter: Enter) -> Iterator[None]:
    """Inside the block the program is checked until its first optimizer step has been taken; never again afterwards.

    ``enter``  starts the check that gathers its findings in the collector, and gives its session.
    """
    if _Job.over:
        yield
        return
    collector = Collector(script=sys.argv[0], rank=_rank())
    started_s = time.perf_counter()
    with contextlib.ExitStack() as check:
        session = check.enter_context(enter(collector))

        def end(*args: object) -> None:
            if _Job.over:
                return
            _Job.over = True
            session.paused = True  # for as long as another mode lies above ours
            modes = function_modes()
            if modes and modes[-1] is session.mode:
                check.close()
            hook.remove()
            _report(collector, time.perf_counter() - started_s)

        hook = register_optimizer_step_post_hook(end)
        try:
            yield
        finally:
            end()


def _report(collector: Collector, duration_s: float) -> None:
    """What was found, from rank 0 and from every rank that has found something."""
    result = collector.result()
    if result.rank and not result.errors:
        return
    done = counted(result.checked_ops, "operation")
    sys.stderr.write(
        f"{render_result(result)}\nshardwise: the first step of rank {result.rank or 0} was checked, {done} in "
        f"{duration_s:.2f} s; later steps run unchecked\n"
    )
    sys.stderr.flush()


def _rank() -> int:
    said = os.environ.get("RANK", "0")
    return int(said) if said.isascii() and said.isdigit() else 0
