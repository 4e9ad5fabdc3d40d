"""Right programs that are mutated: those of the zoo, and ``examples/gpt`` with and without sequence parallelism."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shardwise.host.program import Program
from shardwise.zoo.catalogue import entry, names

from .mutants import mutants_in
from .operators import OF_COLLECTIVES, OF_MESSAGES, Mutant

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
    operators: tuple[str, ...] = OF_COLLECTIVES

    def __str__(self) -> str:
        return self.name

    @property
    def program(self) -> Program:
        """What runs it, on a mesh of any size."""
        axes = (word for axis in self.mesh for word in (f"--{axis}", f"{{{axis}}}"))
        return Program(path=str(self.path), arguments=(*axes, *self.more.split()))

    @functools.cached_property
    def mutants(self) -> list[Mutant]:
        """Every mistake in it that ``operators`` make."""
        return mutants_in(self.path, tuple(self.mesh), self.operators)

    @functools.cached_property
    def between_ranks(self) -> RightProgram:
        """The same with the mistakes of messages, groups and pieces."""
        return replace(self, name=f"{self.name}_between_ranks", operators=OF_MESSAGES)


def corpus() -> Iterator[RightProgram]:
    """The programs with mistakes of collectives, those of the zoo first; then those of messages, groups and pieces."""
    programs = _programs()
    yield from (one for one in programs if not one.name.endswith("_of_4"))
    for one in programs:
        if one.between_ranks.mutants:
            yield one.between_ranks


@functools.cache
def _programs() -> tuple[RightProgram, ...]:
    return tuple(_each_program())


def _each_program() -> Iterator[RightProgram]:
    for name in names():
        found = entry(name)
        yield RightProgram(name, found.path.resolve(), dict(found.program.mesh))
    # On two ranks both neighbours are the same rank.
    yield RightProgram("pipeline_of_4", entry("pipeline").path.resolve(), {"pp": 4})
    yield RightProgram("ring_attention_of_4", entry("ring_attention").path.resolve(), {"dp": 1, "cp": 4})
    gpt = ROOT / "examples" / "gpt" / "train.py"
    yield RightProgram("gpt", gpt, {"dp": 2, "tp": 2}, GPT)
    yield RightProgram("gpt_sequence_parallel", gpt, {"dp": 2, "tp": 2}, f"{GPT} --sequence-parallel")
