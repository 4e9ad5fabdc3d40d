"""Programs of the zoo on meshes of other sizes: each runs there, or says which dim does not go into how many ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from math import prod

import pytest
import torch

from shardwise.worlds.fake import fake_world
from shardwise.zoo.catalogue import entry, names
from shardwise.zoo.evidence import run
from shardwise.zoo.kept_memory import KeptMemory
from shardwise.zoo.program import ZooProgram, device_mesh, train
from shardwise.zoo.programs.context_parallel import T, positions

MOST = 8
SIZES = (1, 2, 3, 4, 8)


def sizes_of(program: ZooProgram, most: int) -> Iterator[dict[str, int]]:
    """Sizes of all axes, of at most so many ranks; the largest of the first axis last."""
    for sizes in itertools.product(SIZES, repeat=len(program.mesh)):
        if prod(sizes) <= most:
            yield dict(zip(program.mesh, sizes, strict=True))


def meshes_of(program: ZooProgram, ranks: int) -> Iterator[dict[str, int]]:
    """Those of so many ranks on which it runs."""
    for sizes in sizes_of(program, ranks):
        if prod(sizes.values()) == ranks and program.misfit(sizes) is None:
            yield sizes


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", names())
def test_on_every_mesh_that_fits_it_runs(name: str) -> None:
    """One rank of each, the last one: what it receives is made up, and all that it cuts has to go into the ranks."""
    program = entry(name).program
    for ranks in range(1, MOST + 1):
        for sizes in meshes_of(program, ranks):
            with fake_world(rank=ranks - 1, world_size=ranks):
                train(program, device_mesh(sizes), steps=1)


ONE_SEQUENCE = {"dp": 4, "pp": 1, "cp": 1, "tp": 2}
"""Of Llama's program: keys and values of one sequence and one group of heads are not copied, so less is kept."""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", names())
def test_on_every_mesh_that_fits_rank_0_keeps_what_the_formulas_say(name: str) -> None:
    found = entry(name)
    for ranks in range(1, MOST + 1):
        for sizes in meshes_of(found.program, ranks):
            with fake_world(rank=0, world_size=ranks):
                train(found.program, device_mesh(sizes), steps=1, kept=(kept := KeptMemory()))
            by_formula = found.activations(sizes) * 8
            less = name == "llama_405b_4d" and sizes == ONE_SEQUENCE
            assert kept.activations < by_formula if less else kept.activations == by_formula, sizes
            assert kept.gradients == found.gradients(sizes) * 8, sizes


def test_what_is_kept_counts_each_storage_once_and_forgets_what_is_freed_or_sent() -> None:
    weight = torch.ones(4, 4, dtype=torch.float64, requires_grad=True)
    inputs = torch.ones(2, 4, dtype=torch.float64)

    def forward_and_backward(times: int) -> None:
        for _ in range(times):
            torch.ones(1000).exp()
            h = (inputs @ weight).exp()  # exp keeps its result; the product is freed
            views = h.view(8), h.t()
            (h * views[1].t()).sum().backward()

    kept = KeptMemory()
    with kept.step():
        forward_and_backward(2)
    assert kept.activations == 2 * 4 * 8
    assert kept.gradients == weight.nbytes
    with kept.step():
        (inputs[:1] @ weight).exp().sum().backward()
    assert kept.activations == 2 * 4 * 8, "the most of both steps"


@pytest.mark.parametrize("name", names())
def test_a_mesh_that_does_not_fit_is_refused_with_the_dim_and_the_ranks(name: str) -> None:
    program = entry(name).program
    refused = [said for sizes in sizes_of(program, MOST) if (said := program.misfit(sizes)) is not None]
    assert refused
    assert all("is no multiple of" in said for said in refused)


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("ulysses", {"dp": 1, "sp": 8}, "the heads is f64[4@dp, 4@sp, 8, 3], and 4 is no multiple of 8 ranks"),
        ("ring_attention", {"dp": 1, "cp": 8}, "half of the positions is i64[4@cp], and 4 is no multiple of 8 ranks"),
        ("zero1", {"dp": 8}, "the state of down is f64[12@dp, 16], and 12 is no multiple of 8 ranks"),
    ],
    ids=["more ranks than heads", "more ranks than pairs of pieces", "rows of a weight that only the optimizer cuts"],
)
def test_what_is_cut_on_the_way_has_to_fit_too(name: str, sizes: Mapping[str, int], said: str) -> None:
    assert entry(name).program.misfit(sizes) == said


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_causal_work_is_dealt_out_evenly_on_any_number_of_ranks(ranks: int) -> None:
    """A query at position t sees t + 1 keys."""
    pieces = positions().chunk(ranks)
    assert torch.cat(pieces).sort().values.tolist() == list(range(T))
    assert {int((piece + 1).sum()) for piece in pieces} == {T * (T + 1) // 2 // ranks}


def test_a_mesh_of_one_rank_fits_everywhere() -> None:
    for name in names():
        program = entry(name).program
        assert [prod(sizes.values()) for sizes in meshes_of(program, 1)] == [1]


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", names())
def test_it_computes_the_same_on_a_mesh_of_another_shape(name: str) -> None:
    program = entry(name).program
    few = [sizes for ranks in (4, 2) for sizes in meshes_of(program, ranks)]
    other = next(sizes for sizes in few if sizes != dict(program.mesh))
    assert run(program, other).disagreements == ()
