"""``shardwise check --watch``: run again when a file of the program changes, each time in a fork of a warm process.

The process that waits has torch and the checker imported and runs nothing, so a run starts where the program does. A
fork tells which files of the project it has read, and with which stamps, and where a module would be that it has not
found; the process that waits looks at these files, by name, so that an editor which saves by renaming is seen as one
that writes. A run that is outdated is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program

POLL_S = 0.05
SETTLED_S = 0.05
"""How long files must have stayed as they are: an editor writes several, or one in pieces."""
CLEAR = "\x1b[2J\x1b[3J\x1b[H"
FOREIGN = ("site-packages", "dist-packages", ".git", ".venv", "__pycache__")
WARM = ("torch", "shardwise", "numpy", "sympy")
"""Packages that do nothing when they are imported but take time: what a run has imported of them, the next finds."""
SOURCE = (".py", f"{os.sep}__init__.py")
HEARD = frozenset(("open", "import"))
READ = (".py", ".toml", ".yaml", ".yml", ".json", ".ini", ".cfg")
"""What decides how a program runs, its data apart. A file that a program writes as well is none of these."""

Stamp = tuple[int, int, int, int]

watch_option = click.option(
    "--watch",
    is_flag=True,
    help="Run again when a file of the program changes: the script, and what it imports from its project.",
)


def stamp_of(file: str) -> Stamp | None:
    """What changes when the file does, or who may read it; None if there is none (an editor is renaming it)."""
    try:
        seen = os.stat(file)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_mode


def project_of(program: Program) -> str:
    """The folder whose files are the program's own: the current one if the script is in it, else the script's."""
    here = os.path.realpath(os.getcwd())
    home = os.path.dirname(os.path.realpath(program.path)) if program.path else here
    return here if f"{home}{os.sep}".startswith(f"{here}{os.sep}") else home


def watch_runs(program: Program, files: Iterable[Path] = ()) -> None:
    """Return in a fork for each run. The process itself stays here until Ctrl-C, and exits with 0.

    ``files``  what decides besides the program, whether it is there or not.
    """
    if not hasattr(os, "fork"):
        raise click.UsageError("--watch needs a system that can fork a process; here run the command again by hand")
    _import_warm()
    watch = _Watch(program, files)
    with _ended_by_signals():
        while watch.run():
            pass


def is_watched_run() -> bool:
    """This process is a fork that ``watch_runs`` has returned in."""
    return bool(_telling)


def tell_watched(files: Iterable[Path]) -> None:
    """In such a fork: look at these files, too."""
    for tell in _telling:
        for file in files:
            tell({"file": os.path.realpath(file), "stamp": stamp_of(os.path.realpath(file))})


_telling: list[Callable[[dict[str, object]], None]] = []
"""In a fork, how it tells the process that waits."""


def _import_warm() -> None:
    """Before the first run, all that every run needs."""
    for name in ("torch", "shardwise.cli.runs.run", "shardwise.cli.runs.ranks", "shardwise.diagnostics.text"):
        importlib.import_module(name)


def _rehearse() -> None:
    """Of every module that has come since the last run, find what a check replaces in it."""
    importlib.import_module("shardwise.checker.patching.installation").rehearse()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A request to terminate (a closed terminal, a CI job at its end) ends it as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    yield


class _Watch:
    """The runs so far: the files that they have read, as they were then, and those that they have written."""

    def __init__(self, program: Program, files: Iterable[Path]) -> None:
        self._home = os.getcwd()
        self._root = project_of(program)
        self._written: set[str] = set()
        watched = [os.path.realpath(str(file)) for file in (*files, program.path) if str(file)]
        self._stamps: dict[str, Stamp | None] = {file: stamp_of(file) for file in watched}

    def run(self) -> bool:
        """False in the fork that is to run the program; True when it is time for the next."""
        with contextlib.suppress(OSError):  # another folder of this name may have come in its place
            os.chdir(self._home)
        if sys.stdout.isatty():
            click.echo(CLEAR, nl=False)
        sys.stdout.flush()
        sys.stderr.flush()
        _rehearse()
        gc.collect()
        gc.freeze()  # what is never looked at is never copied
        told, telling = os.pipe()
        fork = os.fork()
        if fork == 0:
            os.close(told)
            _become_run(self._root, telling)
            return False
        os.close(telling)
        with contextlib.suppress(OSError):  # it may have done so itself, or have ended
            os.setpgid(fork, fork)
        try:
            self._attend(fork, told)
        except KeyboardInterrupt:
            _end(fork)
            click.echo(err=True)
            click.echo("shardwise: no longer watching", err=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ExitCode.CLEAN)
        finally:
            os.close(told)
        return True

    def _attend(self, fork: int, told: int) -> None:
        """Wait for the end of the run, then for a change; a change before the end ends the run."""
        os.set_blocking(told, False)
        heard = b""
        started_s, running = time.monotonic(), True
        while not self._changed():
            with contextlib.suppress(BlockingIOError):
                heard += os.read(told, 1 << 20)
                heard = self._hear(heard)
            if running and os.waitpid(fork, os.WNOHANG)[0]:
                running = False
                with contextlib.suppress(BlockingIOError):
                    while piece := os.read(told, 1 << 20):
                        heard = self._hear(heard + piece)
                self._tell_waiting(time.monotonic() - started_s)
            time.sleep(POLL_S)
        if running:
            _end(fork)
        self._settle()

    def _hear(self, text: bytes) -> bytes:
        """Take the whole lines of what the run has told; the rest comes back."""
        *lines, rest = text.split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "written" in said:
                self._written.add(said["written"])
                self._stamps.pop(said["written"], None)
            if "file" in said and said["file"] not in self._written:
                stamp = said["stamp"]
                self._stamps.setdefault(said["file"], None if stamp is None else tuple(stamp))
            for name in said.get("modules", ()):
                if name not in sys.modules:
                    with contextlib.suppress(Exception):  # the run may have had other search paths
                        importlib.import_module(name)
        return rest

    def _changed(self) -> bool:
        return any(stamp_of(file) != stamp for file, stamp in self._stamps.items())

    def _settle(self) -> None:
        """Wait until nothing changes any more and the files that were there are there again."""
        while True:
            before = {file: stamp_of(file) for file in self._stamps}
            time.sleep(SETTLED_S)
            if before == {file: stamp_of(file) for file in self._stamps}:
                break
        gone = [file for file, stamp in before.items() if stamp is None and self._stamps[file] is not None]
        deadline_s = time.monotonic() + 10 * SETTLED_S
        while gone and time.monotonic() < deadline_s:  # between the two steps of a rename
            time.sleep(POLL_S)
            gone = [file for file in gone if stamp_of(file) is None]
        self._stamps = {file: stamp_of(file) for file in self._stamps}

    def _tell_waiting(self, took_s: float) -> None:
        watched = sum(stamp is not None for stamp in self._stamps.values())
        said = f"watching {counted(watched, 'file')}, the run took {took_s:.1f} s; Ctrl-C ends"
        click.echo(click.style(f"\nshardwise: {said}", dim=sys.stderr.isatty()), err=True)


def _become_run(root: str, telling: int) -> None:
    """In the fork: a group of its own, nothing to read, and every file of the project that it opens is told."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_inheritable(telling, False)
    before = set(sys.modules)
    hearing = _Hearing(root, telling)
    _telling.append(hearing.tell)

    def tell_modules() -> None:
        fresh = [name for name in list(sys.modules) if name not in before and name.partition(".")[0] in WARM]
        for name in fresh:
            hearing.tell({"modules": [name]})
        hearing.tell_missing()

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event in HEARD:  # a run has half a million events, nearly all of them ``id``
            hearing.hear(event, arguments)

    sys.addaudithook(hear)
    atexit.register(tell_modules)


class _Hearing:
    """What a run does that decides when the next is due: files of the project that it opens, modules it asks for."""

    def __init__(self, root: str, telling: int) -> None:
        self._inside = root + os.sep
        self._telling = telling
        self._known: set[tuple[str, bool]] = set()
        self._asked: dict[str, tuple[str, ...]] = {}

    def tell(self, said: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._telling, json.dumps(said).encode() + b"\n")

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            self._opened(arguments[0], writes=bool(int(str(arguments[2] or 0)) & (os.O_WRONLY | os.O_RDWR)))
        elif event == "import":
            # With the path as it is then: when the run is over the script's folder is no longer on it.
            self._asked[str(arguments[0])] = tuple(sys.path)

    def _opened(self, file: str, *, writes: bool) -> None:
        if file.endswith(".pyc") and "__pycache__" in file:
            try:
                file, writes = importlib.util.source_from_cache(file), False
            except ValueError:
                return
        if not file.endswith(READ):
            return
        file = os.path.realpath(file)
        if (file, writes) in self._known or not self._is_own(file):
            return
        self._known.add((file, writes))
        self.tell({"written": file} if writes else {"file": file, "stamp": stamp_of(file)})

    def _is_own(self, file: str) -> bool:
        return file.startswith(self._inside) and not set(Path(file[len(self._inside) :]).parts) & set(FOREIGN)

    def tell_missing(self) -> None:
        """The files that would be the modules which were asked for and are not there: somebody may write them."""
        for name, places in self._asked.items():
            if name in sys.modules:
                continue
            parts = name.split(".")
            for place in places:
                whole = os.path.realpath(os.path.join(place, *parts))
                if not self._is_own(whole) or any(os.path.isfile(whole + end) for end in SOURCE):
                    continue
                for count in range(1, len(parts) + 1):  # a package that is missing, too
                    for end in SOURCE:
                        file = os.path.realpath(os.path.join(place, *parts[:count]) + end)
                        self.tell({"file": file, "stamp": stamp_of(file)})


def _end(fork: int) -> None:
    """End a run and everything that it has started."""
    with contextlib.suppress(OSError):
        os.killpg(fork, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(fork, 0)
