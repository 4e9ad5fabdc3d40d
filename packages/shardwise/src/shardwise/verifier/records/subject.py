"""What is verified? A script, a module, or a function, given as an object or by name.

In the arguments of a script, the name of a mesh axis in braces stands for the axis's size in each run, and
``{world_size}`` for the number of ranks.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from shardwise.host.attribute_patch import patched
from shardwise.host.no_run import NoProgram
from shardwise.host.program import Program, output_to_stderr


class Subject(Protocol):
    """What can be verified; its text is its name in the report.

    ``joined``  it takes the process group as given, and does not make it.
    """

    @property
    def joined(self) -> bool: ...

    def declared(self, before: Callable[[], object]) -> Subject:
        """The same, with ``before`` called first on every rank."""

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[object], object]:
        """What runs it on a mesh of these sizes, given the device mesh; its result is compared too.

        Errors: NoProgram, or SyntaxError, if it cannot be read.
        """


def project_of(subject: Subject) -> Path:
    """The folder whose files are the program's own: the current one if the program is in it, else the program's."""
    here = Path.cwd().resolve()
    home = subject.program.path if isinstance(subject, Script) else getattr(subject, "home", None)
    if not home or not home.endswith(".py"):
        return here
    path = Path(home).resolve()
    return here if path.is_relative_to(here) else path.parent


@dataclass(frozen=True)
class Script:
    """A script or a module and its arguments."""

    program: Program
    joined: ClassVar[bool] = False

    def __str__(self) -> str:
        return str(self.program)

    def declared(self, before: Callable[[], object]) -> Script:
        return Script(replace(self.program, before=before))

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[object], object]:
        """What runs it on a mesh of these sizes. NoProgram, or SyntaxError, if it cannot be read."""
        program = replace(self.program, arguments=tuple(filled(word, sizes) for word in self.program.arguments))
        if program.module:
            # Each rank for itself: the packages that it is in are imported, and may keep what they find.
            return lambda mesh: program.run(program.load())
        loaded = program.load()
        return lambda mesh: program.run(loaded)


@dataclass(frozen=True)
class Function:
    """A function that takes nothing, or the device mesh; what it returns is compared too."""

    function: Callable[..., Any]
    name: str = field(default="")
    joined: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.name or getattr(self.function, "__qualname__", repr(self.function))

    def declared(self, before: Callable[[], object]) -> Function:
        @functools.wraps(self.function)
        def function(*arguments: object) -> object:
            before()
            return self.function(*arguments)

        return Function(function, str(self))

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[object], object]:
        if _takes_mesh(self.function):
            return lambda mesh: self.function(mesh)
        return lambda mesh: self.function()


@dataclass(frozen=True)
class Named:
    """A function by name: ``package.module:function`` or ``file.py:function``. Loaded by each rank for itself."""

    home: str
    function: str
    before: Callable[[], object] | None = None
    joined: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.home}:{self.function}"

    def declared(self, before: Callable[[], object]) -> Named:
        return replace(self, before=before)

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[object], object]:
        return lambda mesh: self.loaded().prepare(sizes)(mesh)

    def loaded(self) -> Function:
        """The function itself. NoProgram if there is none."""
        with output_to_stderr():
            found: Any = _from_file(self.home) if self.home.endswith(".py") else _from_path(self.home)
        for part in self.function.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise NoProgram(f"there is no function {self.function} in {self.home}")
        function = Function(found, str(self))
        return function if self.before is None else function.declared(self.before)

    def require(self) -> None:
        """NoProgram if there is no such file."""
        if self.home.endswith(".py"):
            Program(path=self.home).require()


def filled(word: str, sizes: Mapping[str, int]) -> str:
    """``word`` with ``{axis}`` and ``{world_size}`` replaced by numbers; other braces stay."""
    world_size = functools.reduce(lambda a, b: a * b, sizes.values(), 1)
    for name, size in {**sizes, "world_size": world_size}.items():
        word = word.replace("{" + name + "}", str(size))
    return word


def subject_named(text: str, arguments: Sequence[str]) -> Subject:
    """The script, or the function, that ``text`` names. NoProgram if there is no such file."""
    home, colon, function = text.rpartition(":")
    if colon and not os.path.exists(text) and function.replace(".", "").isidentifier():
        if arguments:
            raise NoProgram(f"{text} is a function, which takes no arguments from the command line")
        named = Named(home, function)
        named.require()
        return named
    program = Program(path=text, arguments=tuple(arguments))
    program.require()
    return Script(program)


def _takes_mesh(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters
    )


def _from_file(file: str) -> object:
    path = Path(file).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NoProgram(f"cannot read {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    # Kept on the path: the function may import its neighbours when it is called.
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def _from_path(name: str) -> object:
    with patched(sys, "path", [os.getcwd(), *sys.path[1:]]):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            raise NoProgram(f"there is no module {name}; the search starts in this folder") from None
