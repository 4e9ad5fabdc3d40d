"""How is a script run as if Python had started it? As ``__main__``, with its own arguments, path and standard output.

What it prints goes to stderr, in every format, so that stdout holds the report and nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import difflib
import importlib.util
import io
import linecache
import multiprocessing.process
import os
import shlex
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, NoReturn

from .attribute_patch import patched
from .interpreter_state import folder_kept, interpreter_kept
from .no_run import NoProgram, StartsProcesses
from .overlay import compiled, imports_overlaid, read_bytes
from .thread_errors import thread_errors_of_own_frames
from .user_warnings import warnings_at_own_lines

_START = multiprocessing.process.BaseProcess.start


@dataclass(frozen=True)
class Loaded:
    """A program's code, its file and, for a module, where it was found."""

    code: CodeType
    file: str
    spec: ModuleSpec | None = None


@dataclass(frozen=True)
class Program:
    """A script (``path``) or a module (``module``, as with ``python -m``) and its arguments.

    ``before``  what is called first, where the program's own imports work.
    """

    path: str = ""
    module: str = ""
    arguments: Sequence[str] = field(default=())
    before: Callable[[], object] | None = None

    def __str__(self) -> str:
        return f"-m {self.module}" if self.module else self.path

    def require(self) -> None:
        """NoProgram if there is no such script. Cheap, so that a typing mistake is told at once."""
        if self.module:
            return
        if not self.path:
            raise NoProgram("the name of the script is empty: name a file, as train.py")
        if not os.path.isfile(self.path):
            raise NoProgram(_why_no_file(self.path))
        if self.path.endswith(".ipynb"):
            raise NoProgram(
                f"{self.path} is a notebook, not a script: in it, %load_ext shardwise and %%shardwise check a cell; "
                f"`jupyter nbconvert --to script {shlex.quote(self.path)}` writes it as a script"
            )

    def load(self) -> Loaded:
        """Its code. SyntaxError if it does not parse; NoProgram if there is none."""
        if self.module:
            return _load_module(self.module, self.arguments)
        file = os.path.abspath(self.path)
        try:
            source = read_bytes(file)
        except OSError as error:
            raise NoProgram(f"cannot read {self.path}: {(error.strerror or str(error)).lower()}") from None
        if b"\0" in source:
            raise NoProgram(f"{self.path} is binary, and no Python source")
        _require_encoding(source, file)
        # Read now, for excerpts: the program may write over its own file.
        linecache.checkcache(file)
        linecache.getlines(file)
        return Loaded(compiled(source, file), file)

    def run(self, loaded: Loaded) -> None:
        """Run to the end, with the handlers that it registered for its end."""
        main = ModuleType("__main__")
        main.__dict__.update(__file__=loaded.file, __builtins__=__builtins__)
        own = os.path.dirname(loaded.file)
        folder = own
        if loaded.spec is not None:
            main.__dict__.update(__spec__=loaded.spec, __package__=loaded.spec.parent, __loader__=loaded.spec.loader)
            folder = os.getcwd()
        handlers: list[Callable[[], Any]] = []
        with (
            interpreter_kept(),
            _entry(sys.modules, "__main__", main),
            patched(sys, "argv", [loaded.file, *self.arguments]),
            patched(sys, "path", [folder, *sys.path[1:]]),
            patched(atexit, "register", _register(handlers, own)),
            output_to_stderr(),
            warnings_at_own_lines(),
            thread_errors_of_own_frames(),
            folder_kept(),
            _no_processes(),
            imports_overlaid(),
        ):
            try:
                if self.before is not None:
                    self.before()
                exec(loaded.code, main.__dict__)
            finally:
                while handlers:
                    handlers.pop()()


def _require_encoding(source: bytes, file: str) -> None:
    """Refuse what ``python FILE`` refuses and ``compile`` does not: a comment that is no UTF-8. Errors: SyntaxError."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
    except SyntaxError:
        encoding = "utf-8"  # what it declares is told by whoever compiles it
    if encoding not in ("utf-8", "utf-8-sig"):
        return
    try:
        source.decode()
    except UnicodeDecodeError as error:
        line, byte = source.count(b"\n", 0, error.start) + 1, source[error.start]
        raise SyntaxError(
            f"Non-UTF-8 code starting with '\\x{byte:02x}', but no encoding declared", (file, line, None, None)
        ) from None


def _why_no_file(path: str) -> str:
    """What is wrong with a path of which no script can be read."""
    if path == "-":
        return "a script is read from a file, not from standard input: save it, and name the file"
    if os.path.isdir(path):
        return f"the script {path} is a folder, not a script"
    if os.path.exists(path):
        return f"the script {path} is a pipe or a device: save it as a file, and name that"
    if os.path.islink(path):
        return f"the script {path} is a link to {os.readlink(path)}, where no file is"
    return f"the script {path} does not exist{_near(path)}"


def _near(path: str) -> str:
    """``; did you mean train.py?`` where a script of nearly this name lies in the folder."""
    file, colon, _ = path.partition(".py:")
    if colon and os.path.isfile(f"{file}.py"):
        return f", and {file}.py does: FILE:FUNCTION is for verify and infer, with the name of a function"
    folder, name = os.path.split(path)
    try:
        there = [one for one in os.listdir(folder or ".") if os.path.isfile(os.path.join(folder, one))]
        there = [one for one in there if one.endswith(".py")]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(name if name.endswith(".py") else f"{name}.py", there, n=1, cutoff=0.75)
    return f"; did you mean {os.path.join(folder, close[0])}?" if close else ""


def _load_module(name: str, arguments: Sequence[str]) -> Loaded:
    # The packages that the module is in are imported here, and may read the command line.
    arguments_known = patched(sys, "argv", ["-m", *arguments])
    with patched(sys, "path", [os.getcwd(), *sys.path[1:]]), arguments_known, imports_overlaid():
        package = False
        try:
            spec = importlib.util.find_spec(name)
            package = spec is not None and spec.submodule_search_locations is not None
            if package:
                spec = importlib.util.find_spec(f"{name}.__main__")
        except ModuleNotFoundError:
            spec = None
        get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
        code = get_code(spec.name) if spec is not None and get_code is not None else None
    if code is None:
        why = "it is a package without __main__" if package else "the search starts in this folder"
        raise NoProgram(f"there is no module {name} that can be run; {why}")
    return Loaded(code, code.co_filename, spec)


@contextlib.contextmanager
def _entry(mapping: dict[str, Any], key: str, value: object) -> Iterator[None]:
    before = mapping[key]
    mapping[key] = value
    try:
        yield
    finally:
        mapping[key] = before


def _register(handlers: list[Callable[[], object]], folder: str) -> Callable[..., object]:
    """``atexit.register`` that keeps what the program registers, so that it is run in the program's own world."""
    original = atexit.register

    def register(function: Callable[..., object], *args: object, **options: object) -> object:
        file = sys._getframe(1).f_code.co_filename
        if not os.path.abspath(file).startswith(folder + os.sep):
            return original(function, *args, **options)
        handlers.append(lambda: function(*args, **options))
        return function

    return register


@contextlib.contextmanager
def output_to_stderr() -> Iterator[None]:
    """What is written to stdout, by Python or by anything else in this process, goes to stderr."""
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        if sys.stdout is sys.__stdout__ and sys.__stderr__ is not None:
            out, err = sys.__stdout__.fileno(), sys.__stderr__.fileno()
            kept = os.dup(out)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, out)
            os.dup2(err, out)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


@contextlib.contextmanager
def _no_processes() -> Iterator[None]:
    """Starting a process stops the program: what runs in it would go unchecked, and unnoticed. A world may know better.

    Leaving this process without a word (``os._exit``) ends the program like ``sys.exit``: a report is still due.
    """

    def refuse(*args: object, **options: object) -> NoReturn:
        raise StartsProcesses(
            "the program starts processes of its own; only this one is checked: "
            "check the function that one rank runs, or write the script for torchrun, which starts one process per rank"
        )

    with contextlib.ExitStack() as stack:
        for name in ("fork", "execv", "execve"):
            stack.enter_context(patched(os, name, refuse))
        stack.enter_context(patched(os, "_exit", sys.exit))
        if multiprocessing.process.BaseProcess.start is _START:
            stack.enter_context(patched(multiprocessing.process.BaseProcess, "start", refuse))
        yield
