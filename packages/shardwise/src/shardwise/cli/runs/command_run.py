"""A command of ours, run again from this process as if it had been started anew."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence

from shardwise.host.worker_pool import end_with_parent

LEAVE = os._exit
"""As it is before a program runs, for which leaving is an exception."""


def command_run(words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and the standard output of ``shardwise WORDS``, with more variables in the environment.

    It is run in a fork, which its program may take with it; nothing is read, and what goes to standard error is lost.
    """
    with tempfile.TemporaryFile() as output:
        fork = os.fork()
        if fork == 0:
            try:
                LEAVE(_command(words, variables, output.fileno()))
            finally:
                LEAVE(1)
        code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _command(words: Sequence[str], variables: Mapping[str, str], output: int) -> int:
    """Its exit code, if it returns."""
    end_with_parent()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream, file in enumerate((nothing, output, nothing)):
        os.dup2(file, stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", encoding="utf-8"), open(2, "w")  # noqa: SIM115
    os.environ.update(variables)
    sys.argv = ["shardwise", *words]
    try:
        runpy.run_module("shardwise", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
    return 0
