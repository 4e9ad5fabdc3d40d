"""Does a fix that the checker offers ever hide a mistake? Fixes are made in mutants of right programs, and run."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from shardwise.diagnostics.fix import Fix, Wrap
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.host.program import Program
from shardwise.zoo.catalogue import names
from shardwise_devtools.mutate.advice import After, outcome, told, try_all, with_fix
from shardwise_devtools.mutate.corpus import RightProgram, corpus
from shardwise_devtools.mutate.measure import Bench
from shardwise_devtools.mutate.mutants import mutants_in

SEED = 4
SAMPLE = 3
"""Mutants that are looked at here; ``shardwise-devtools advice`` takes all of all programs."""
PROGRAMS = ("tensor_parallel", "sequence_parallel")
KINDS = ("bias", "late", "transition")
"""Kinds of mistakes that fixes are offered for, and that do not hang."""
TRAIN = """\
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import shardwise as spmd
from shardwise import I, P, R, S

torch.set_default_dtype(torch.float64)
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
whole = torch.randn(6, generator=torch.Generator().manual_seed(0))
with spmd.set_current_mesh(mesh):
    piece = whole.chunk(mesh.size())[mesh.get_local_rank()].clone()
    weight = spmd.assert_type(torch.nn.Parameter(piece), {"tp": S(0)})
    loss = spmd.all_reduce(spmd.sum(weight * weight, 0, out_partial_axes="tp"), "tp", src=P, dst=I) / 24
    loss.backward()
    torch.optim.SGD([weight], lr=0.1).step()
"""


def program(name: str) -> RightProgram:
    return next(one for one in corpus() if one.name == name)


@pytest.mark.slow
def test_the_corpus_holds_the_zoo_and_the_gpt() -> None:
    found = {one.name: one.mesh for one in corpus()}
    gpt, between = ["gpt", "gpt_sequence_parallel"], "_between_ranks"
    assert [name for name in found if not name.endswith(between)] == [*names(), *gpt]
    assert {"ring_attention", "ring_attention_of_4", "pipeline_of_4", *gpt} <= {
        name.removesuffix(between) for name in found
    }
    assert found["tensor_parallel_2d"] == {"row": 2, "column": 2}
    assert program("gpt_sequence_parallel").program.arguments[-1] == "--sequence-parallel"


def test_a_fix_is_made_in_the_text_of_the_mutant(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("y = x\n")
    wrap = Wrap(SourceLocation(str(path), 2, column=4, end_line=2, end_column=5), "convert", '"tp"', "R", "P")
    made = with_fix({path: "# a mutant\ny = b\n"}, Fix("convert b", (wrap,)))
    assert made is not None
    assert made[path].endswith('y = convert(b, "tp", src=R, dst=P)\n')
    elsewhere = replace(wrap, location=replace(wrap.location, file="<string>"))
    assert with_fix({path: "y = b\n"}, Fix("convert b", (elsewhere,))) is None


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.xdist_group("mutate")
def test_no_fix_of_the_sample_hides_a_mistake() -> None:
    programs = [program(name) for name in PROGRAMS]
    mutants = [
        (number, one) for number, each in enumerate(programs) for one in mutants_in(each.path, tuple(each.mesh), KINDS)
    ]
    drawn = random.Random(SEED).sample(mutants, SAMPLE)
    benches = [Bench.of(each.program, each.mesh) for each in programs]
    tried = [one for found in try_all(benches, drawn, 2) for one in found]
    assert {After.RIGHT, After.REJECTED} <= {one.after for one in tried}
    hiding = [told(one) for one in tried if one.after in (After.WRONG, After.UNMADE)]
    assert not hiding, "\n\n".join(hiding)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("mutate")
def test_what_is_clean_and_wrong_is_told(tmp_path: Path) -> None:
    """A count of which nobody knows what it is: types cannot see that it is wrong, and numbers can."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    bench = Bench.of(Program(path=str(path)), {"tp": 2})
    assert outcome(bench, {path: TRAIN})[0] is After.RIGHT
    found, detail = outcome(bench, {path: TRAIN.replace("/ 24", "/ 24 / dist.get_world_size()")})
    assert found is After.WRONG
    assert "differs" in detail
    assert outcome(bench, {path: TRAIN.replace("src=P, dst=I) / 24", "src=P, dst=R) / 24")})[0] is After.REJECTED
    assert outcome(bench, {path: TRAIN.replace("loss.backward()", "raise ValueError")})[0] is After.LOUD
