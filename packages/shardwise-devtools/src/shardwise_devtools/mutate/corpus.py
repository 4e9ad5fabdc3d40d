"""Right programs that are mutated: those of the zoo, and those of ``examples/parallelisms``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardwise.host.program import Program
from shardwise.zoo.catalogue import entry, names

from .mutants import mutants_in
from .operators import Mutant

EXAMPLES = Path(__file__).resolve().parents[5] / "examples" / "parallelisms"


@dataclass(frozen=True)
class RightProgram:
    """A program with an option for the size of each axis of its mesh."""

    path: Path
    mesh: dict[str, int]

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def program(self) -> Program:
        """What runs it, on a mesh of any size."""
        return Program(
            path=str(self.path), arguments=tuple(w for axis in self.mesh for w in (f"--{axis}", f"{{{axis}}}"))
        )

    @property
    def mutants(self) -> list[Mutant]:
        """Every mistake in it."""
        return mutants_in(self.path, tuple(self.mesh))


def corpus() -> Iterator[RightProgram]:
    """The programs, those of the zoo first."""
    for name in names():
        found = entry(name)
        yield RightProgram(found.path.resolve(), dict(found.program.mesh))
    for path in sorted(EXAMPLES.glob("*.py")):
        axes = axes_of(path.read_text())
        if axes:
            yield RightProgram(path, dict.fromkeys(axes, 2))


def axes_of(text: str) -> tuple[str, ...]:
    """The axes of an example: what it calls ``start`` of ``common.py`` with; empty if it is no program."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    starts = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "start"]
    return tuple(ast.literal_eval(word) for call in starts[:1] for word in call.args)
