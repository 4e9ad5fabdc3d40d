"""A program is run once more, otherwise than the first time, for what one run leaves open."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TypeVar

from shardwise.host.kept_process import KeptProcess
from shardwise.host.program import Program

from ..progress import progress
from ..run import CheckOptions

_Result = TypeVar("_Result")


def further_run(
    other: KeptProcess, run: Callable[..., _Result], program: Program, options: CheckOptions, why: str, *how: object
) -> _Result | None:
    """What ``run(program, options, *how)`` gives in a process in which no program has run; None if that breaks.

    Nothing is recorded, and what the program prints it has printed before. ``why`` is said if it takes long.
    """
    own = replace(options, plain_progress=False, trace=False, record=False)
    with progress(lambda: f"once more, {why}", plain=options.plain_progress):
        try:
            found: _Result = other.call(_silently, run, program, own, *how)
        except (BrokenProcessPool, RuntimeError):
            return None
    return found


def _silently(run: Callable[..., _Result], *arguments: object) -> _Result:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    return run(*arguments)
