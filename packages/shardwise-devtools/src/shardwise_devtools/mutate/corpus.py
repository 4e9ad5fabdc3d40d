"""Right programs that are mutated: those of the zoo, and ``examples/gpt`` with and without sequence parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardwise.host.program import Program
from shardwise.zoo.catalogue import entry, names

from .mutants import mutants_in
from .operators import Mutant

ROOT = Path(__file__).resolve().parents[5]
GPT = (
    "--layers 1 --width 16 --heads 4 --kv-heads 2 --hidden 16 --vocab 64 --batch 4 --length 8 --steps 2 --dtype float64"
)


@dataclass(frozen=True)
class RightProgram:
    """A script with an option for the size of each axis of its mesh, and what more it is given."""

    name: str
    path: Path
    mesh: dict[str, int]
    more: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def program(self) -> Program:
        """What runs it, on a mesh of any size."""
        axes = (word for axis in self.mesh for word in (f"--{axis}", f"{{{axis}}}"))
        return Program(path=str(self.path), arguments=(*axes, *self.more.split()))

    @property
    def mutants(self) -> list[Mutant]:
        """Every mistake in it."""
        return mutants_in(self.path, tuple(self.mesh))


def corpus() -> Iterator[RightProgram]:
    """The programs, those of the zoo first."""
    for name in names():
        found = entry(name)
        yield RightProgram(name, found.path.resolve(), dict(found.program.mesh))
    gpt = ROOT / "examples" / "gpt" / "train.py"
    yield RightProgram("gpt", gpt, {"dp": 2, "tp": 2}, GPT)
    yield RightProgram("gpt_sequence_parallel", gpt, {"dp": 2, "tp": 2}, f"{GPT} --sequence-parallel")
