"""Is every program of examples/parallelisms right: accepted by the checker, and equal in numbers to one rank?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardwise.host.program import Program
from shardwise_devtools.mutate.measure import Bench

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("parallelisms")]

FOLDER = Path(__file__).parents[4] / "examples" / "parallelisms"
MESHES = {
    "tensor_parallel.py": ("dp", "tp"),
    "sequence_parallel.py": ("dp", "tp"),
    "context_parallel.py": ("dp", "cp"),
    "data_parallel.py": ("dp", "tp"),
    "expert_parallel.py": ("dp", "ep"),
    "sharded_parameters.py": ("replica", "shard"),
    "ulysses.py": ("dp", "sp"),
    "training_step.py": ("dp", "tp"),
}


def test_every_program_is_listed() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} - {"common.py", "mutants.py"} == set(MESHES)


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("sizes", [(2, 2), (1, 4)], ids=["2x2", "1x4"])
def test_it_is_accepted_and_computes_what_one_rank_computes(name: str, sizes: tuple[int, int]) -> None:
    """``Bench.of`` raises unless both types and numbers are clean."""
    mesh = dict(zip(MESHES[name], sizes, strict=True))
    arguments = tuple(word for axis in mesh for word in (f"--{axis}", f"{{{axis}}}"))
    bench = Bench.of(Program(path=os.fspath(FOLDER / name), arguments=arguments), mesh)
    assert len(bench.values) == 4
    assert all(len(values) > 5 for values in bench.values)
