"""Wrong programs that fixes are tried on: the bugs of ``examples/bugs``, and the wrong programs of the tests."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwise.cli.options.mesh_option import MeshParam
from shardwise.cli.runs.run import CheckOptions
from shardwise.host.program import Program
from shardwise.mesh.shape import MeshShape
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import filled

ROOT = Path(__file__).resolve().parents[5]
BUGS, TESTS = ROOT / "examples" / "bugs", ROOT / "packages" / "shardwise" / "tests" / "programs"
_OPTIONS = re.compile(r"^# options: (.*)$", re.MULTILINE)
_MESH = re.compile(r"mesh: (\S+)")


@dataclass(frozen=True)
class Subject:
    """A wrong program and how it is run; without a mesh there is no run on one rank that it can be compared with.

    ``numbers``  the program with the options under which its numbers are of interest; sizes of axes are ``{axis}``.
    ``types``    further options when only its types are.
    """

    name: str
    numbers: Program
    mesh: MeshShape | None
    types: tuple[str, ...] = ()
    world_size: int = 0
    strict: bool = True
    local: bool = True

    def checked(self) -> tuple[Program, CheckOptions]:
        """The program with the options of ``check``."""
        sizes = dict(self.mesh.axes) if self.mesh is not None else {}
        arguments = tuple(filled(word, sizes) for word in (*self.numbers.arguments, *self.types))
        ranks = self.world_size or math.prod(sizes.values())
        options = CheckOptions(
            ranks, mesh=self.mesh, strict=self.strict, observe=not self.strict, local=self.local, plain_progress=False
        )
        return Program(path=self.numbers.path, arguments=arguments), options

    def verified(self) -> VerifyOptions:
        """Those of ``verify``."""
        return VerifyOptions(strict=self.strict, local=self.local, timeout_s=90.0, narrow=False)


def bugs(folder: Path) -> Iterator[Subject]:
    """One for every bug of ``examples/bugs`` that types show, in a copy of its program under ``folder``."""
    catalogue, programs = _module("catalogue", BUGS), _module("programs", BUGS)
    for bug in catalogue.load():
        if bug.caught_by not in ("types", "types (global)"):
            continue
        of = programs.PROGRAMS[bug.program]
        script = catalogue.apply(bug, folder / bug.id)
        mesh = MeshShape(tuple(of.mesh.items()))
        numbers = Program(path=str(script), arguments=(*of.axis_options(), *of.numbers, *bug.args))
        yield Subject(f"bugs/{bug.id}", numbers, mesh, of.types, local=bug.caught_by == "types")


def wrong_programs() -> Iterator[Subject]:
    """The wrong programs of the tests, which are not made to be compared with one rank."""
    for path in sorted((TESTS / "wrong").glob("*.py")):
        found = _OPTIONS.search(path.read_text())
        words = found[1].split() if found else []
        sizes = [int(word.removeprefix("world_size=")) for word in words if word.startswith("world_size=")]
        strict = "permissive" not in words
        yield Subject(f"wrong/{path.stem}", Program(path=str(path)), None, world_size=(*sizes, 8)[0], strict=strict)


def unannotated(folder: Path) -> Iterator[Subject]:
    """One for every bug in the programs that know nothing of types."""
    for number, bug in enumerate(_module("bugs", TESTS / "unannotated").BUGS):
        source = (TESTS / "unannotated" / "right" / f"{bug.program}.py").read_text()
        path = folder / f"{bug.program}_{number}.py"
        path.write_text(bug.applied(source))
        found = _MESH.search(source)
        mesh = MeshParam().convert(found[1], None, None) if found else None
        name = f"unannotated/{bug.program}: {bug.what}"
        yield Subject(name, Program(path=str(path)), mesh, strict=False)


def _module(name: str, folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
