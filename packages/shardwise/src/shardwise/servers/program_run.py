"""A check in a process of its own: started, ended when it is outdated, and its result read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardwise.configuration.settings import Settings
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.formats import from_json
from shardwise.diagnostics.result import RunResult


@dataclass(frozen=True)
class WhatRuns:
    """What an editor or an agent has checked: the words after ``shardwise check``, and where.

    ``script``   the script and its arguments; empty: nobody has said it.
    ``options``  options of the command.
    """

    folder: Path
    script: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    python: str = sys.executable

    @classmethod
    def of(cls, folder: Path, said: object, settings: Settings) -> WhatRuns:
        """From what a client has said at its start, else from ``[tool.shardwise]``. ValueError for a wrong value."""
        if said is not None and not isinstance(said, dict):
            raise ValueError(f"the options of initialisation are an object, got {said!r}")
        given = dict(said or {})
        strange = sorted(given.keys() - {"script", "options", "python"})
        if strange:
            raise ValueError(f"unknown option {strange[0]!r}: known are script, options and python")
        script = _words("script", given.get("script") or settings.script)
        python = given.get("python") or sys.executable
        if not isinstance(python, str):
            raise ValueError(f"python is a path, got {python!r}")
        home = settings.folder if not given.get("script") and settings.file is not None else folder
        return cls(home, script, _words("options", given.get("options") or ()), python)

    def command(self, script: Sequence[str], *more: str) -> list[str]:
        """The command line that checks ``script``."""
        words = list(script)
        split = [words[0], "--", *words[1:]] if words[1:] and words[0] != "-m" else words
        return [self.python, "-m", "shardwise", "check", *self.options, *more, "--format", "json", *split]


def _words(name: str, value: object) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} is a list of words, got {value!r}")
    return tuple(words)


@dataclass(frozen=True)
class Answer:
    """What came of a run: its result, which is ``text`` in JSON, or why there is none."""

    result: RunResult | None = None
    failure: str = ""
    text: str = ""


async def run_check(command: Sequence[str], folder: Path) -> Answer:
    """Run the command in ``folder``. When the task is cancelled the process is ended, and all that it has started."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(failure=f"cannot start {command[0]}: {(error.strerror or str(error)).lower()}")
    try:
        out, complaints = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # what it has started ends with it
        with contextlib.suppress(asyncio.CancelledError):
            await process.wait()
        raise
    try:
        text = out.decode("utf-8", "replace")
        return Answer(from_json(text), text=text)
    except SpmdTypeError:
        said = complaints.decode("utf-8", "replace").strip().splitlines()
        return Answer(failure=said[-1] if said else f"the command ended with {process.returncode} and said nothing")
