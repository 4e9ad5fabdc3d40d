"""A Python that has loaded torch already: what tests start in its place begins 3 CPU seconds later in its work.

``WarmPython`` starts one process that loads torch and the command, and writes an executable that stands for
``sys.executable``. That executable hands its words, folder, environment and streams to the process, which forks:
the fork runs the words as Python would, and the executable ends as the fork ends, by an exit code or a signal. It
hands on the signals that it gets, and the fork ends with it.

    with WarmPython(folder) as python:
        subprocess.run([python, "-m", "shardwise", "check", "train.py"])

What is about Python's own start (modules that are loaded, options, limits of the process) needs a real one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

LOADED = (
    "torch",
    "torch.distributed.tensor",
    "shardwise.cli.main",
    "shardwise.cli.check",
    "shardwise.cli.verify",
    "shardwise.cli.infer",
    "shardwise.cli.runs.run",
    "shardwise.cli.runs.ranks",
    "shardwise.verifier.run",
    "shardwise.verifier.text",
)
"""What the process loads before anything is asked of it."""
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""The signals that the fork gets when the executable gets them."""

_EXECUTABLE = """\
#!{python} -IS
import array, json, os, signal, socket, sys
opened = [stream for stream in (0, 1, 2) if os.path.exists("/proc/self/fd/%d" % stream)]
ignored = [number for number in {signals} if signal.getsignal(number) is signal.SIG_IGN]
asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ), ignored]).encode()
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
told = len(asked).to_bytes(8, "little") + bytes([sum(1 << stream for stream in opened)])
server.sendmsg([told], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", opened))] if opened else [])
server.sendall(asked)
for number in {signals}:
    signal.signal(number, lambda number, _: server.sendall(bytes([number])))
ended = server.recv(8)
code = int.from_bytes(ended, "little", signed=True) if ended else 1
if code < 0:
    if -code in {signals}:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class WarmPython:
    """A context that holds the process; its value is the path of the executable.

    Raises RuntimeError if the process cannot start.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="warm-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> str:
        address = str(self._folder / "asked")
        executable = self._folder / "python"
        signals = tuple(int(number) for number in HANDED_ON)
        executable.write_text(_EXECUTABLE.format(python=sys.executable, address=address, signals=signals))
        executable.chmod(0o755)
        # The process ends when nobody holds the other end of its input.
        command = [sys.executable, "-m", "shardwise_devtools.warm_python", str(executable), address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the process that loads torch for the tests has ended before it was ready")
        return str(executable)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, steps: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()
        shutil.rmtree(self._folder)


def main(executable: str, address: str) -> None:
    """Load, say so, and fork for every one who asks, until nobody holds this process any more."""
    from shardwise.verifier.runs.warming import warm_up  # torch; who starts this process needs none of it

    for module in LOADED:
        importlib.import_module(module)
    warm_up()
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"ready\n")
        # Whoever looks after a fork is waited for by nobody.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while listening in select.select([listening, sys.stdin], [], [])[0]:
            asking, _ = listening.accept()
            if os.fork() == 0:
                break
            asking.close()
        else:
            return
    words = _forked(asking)
    sys.executable = executable
    sys.orig_argv = [executable, *words]
    _run(words)


def _forked(asking: socket.socket) -> Sequence[str]:
    """The words to run, in a fork that has everything else of who asks; this process looks after the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, streams, _, _ = socket.recv_fds(asking, 9, 3)
    with asking.makefile("rb") as rest:
        words, folder, environment, ignored = json.loads(rest.read(int.from_bytes(told[:8], "little")))
    process = os.fork()
    if process:
        _look_after(process, asking, streams)
    asking.close()
    for stream in range(3):
        os.close(stream)
    given = [stream for stream in range(3) if told[8] & 1 << stream]
    for stream, handle in zip(given, streams, strict=True):
        os.dup2(handle, stream)
        if handle != stream:
            os.close(handle)
    for stream, name in enumerate(("stdin", "stdout", "stderr")):
        opened = _text(stream) if stream in given else None
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    for number in HANDED_ON:
        heard = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else heard)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return list(words[1:])


def _text(stream: int) -> io.TextIOWrapper:
    """A stream as Python opens it."""
    raw = io.FileIO(stream, "r" if stream == 0 else "w", closefd=False)
    opened = io.BufferedReader(raw) if stream == 0 else io.BufferedWriter(raw)
    errors = "backslashreplace" if stream == 2 else "strict"
    return io.TextIOWrapper(opened, "utf-8", errors, line_buffering=stream == 2 or os.isatty(stream))


def _look_after(process: int, asking: socket.socket, streams: Sequence[int]) -> None:
    """Hand signals on to the fork until it ends, and tell how it ends; without anybody who asks, end it."""
    for stream in streams:
        os.close(stream)
    asked, ended = asking.fileno(), os.pidfd_open(process)
    while ended not in select.select([asked, ended], [], [])[0]:
        signals = asking.recv(1)
        os.kill(process, signals[0] if signals else signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with contextlib.suppress(OSError):
        asking.sendall(code.to_bytes(8, "little", signed=True))
    os._exit(0)


def _run(words: Sequence[str]) -> None:
    """Run what stands behind ``python``: a module, a text or a file, with its own words."""
    match words:
        case ["-u", *rest]:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(write_through=True)
            _run(rest)
        case ["-m", module, *rest]:
            sys.argv, sys.path[0] = [module, *rest], os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", text, *rest]:
            sys.argv, sys.path[0] = ["-c", *rest], ""
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
        case [file, *rest] if not file.startswith("-"):
            sys.argv, sys.path[0] = [file, *rest], str(Path(file).resolve().parent)
            runpy.run_path(file, run_name="__main__")
        case _:
            sys.exit(f"warm Python takes -u, -m, -c or a file, got {words}: Python's own options need a real one")


if __name__ == "__main__":
    main(*sys.argv[1:])
