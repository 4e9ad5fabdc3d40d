"""Which transition is an autograd function around collectives? Numbers on all ranks prove the cases, and judge them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardwise import P, S, V
from shardwise.interop.torch_compat import fake_world
from shardwise.oracle.function_runs import FunctionRuns
from shardwise.oracle.function_transition import transition_of
from shardwise.oracle.function_typings import FunctionTransition, Typing
from shardwise.oracle.reassemble import Grid, Unreadable, deal, reassemble
from shardwise.types.placement import R
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import InProcessWorld, RankFailure

from . import region_functions
from .region_functions import RIGHT, WRONG, Case

SIZE = 4
NEVER_DIFFERS = {"async linear, never waited", "async linear, sequence parallel, never waited"}
"""Wrong by what a real job may do; ranks that take turns show it or not."""


def letter(place: Any) -> str:
    return "V" if isinstance(place, S) else str(place.value)


def type_of(place: Any, grid: Grid, ndim: int) -> TensorType:
    from shardwise.interop.annotations.annotating import asserted_type
    from shardwise.mesh.current import set_current_mesh

    with set_current_mesh(dict(grid.axes)):
        return asserted_type(({"tp": place},), ndim)


def dealt(value: torch.Tensor, place: Any, grid: Grid, generator: torch.Generator) -> list[torch.Tensor]:
    """The local tensors; of ``V`` every rank has one of its own, stacked in ``value``."""
    if place is V:
        return list(value)
    return deal(value, type_of(place, grid, value.ndim), grid, generator)


def agrees(case: Case) -> bool:
    """True if values and gradients on ranks of a world are those of the function of the whole values."""
    grid, generator = Grid.of({"tp": SIZE}), torch.Generator().manual_seed(11)
    shapes = [(SIZE, *shape) if place is V else shape for shape, place in case.operands]
    wholes = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    locals_ = [
        dealt(whole.detach(), place, grid, generator) for whole, (_, place) in zip(wholes, case.operands, strict=True)
    ]
    arguments = [
        row
        for whole, (_, place) in zip(wholes, case.operands, strict=True)
        for row in (whole if place is V else [whole])
    ]
    wanted = case.whole(*arguments)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    seeds = [torch.randn(one.shape, dtype=torch.float64, generator=generator) for one in wanted]
    duals = [case.result.dual if not isinstance(case.result, S) else case.result] * len(wanted)
    cotangents = [dealt(seed, place, grid, generator) for seed, place in zip(seeds, duals, strict=True)]

    def program() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        rank = dist.get_rank()
        own = [one[rank].clone().requires_grad_() for one in locals_]
        made = case.make(dist.group.WORLD).apply(*case.call([x * 1 for x in own], dist.group.WORLD))
        made = made if isinstance(made, tuple) else (made,)
        gradients = torch.autograd.grad(made, own, [each[rank].clone() for each in cotangents])
        return [one.detach() for one in made], list(gradients)

    ranks = InProcessWorld(SIZE).run(program)
    try:
        for at, one in enumerate(wanted):
            read = reassemble(
                [rank[0][at] for rank in ranks], type_of(case.result, grid, one.ndim), grid, tolerance=1e-9
            )
            torch.testing.assert_close(read, one.detach())
        expected = torch.autograd.grad(wanted, wholes, seeds)
        for at, (gradient, (_, place)) in enumerate(zip(expected, case.operands, strict=True)):
            pieces = [rank[1][at] for rank in ranks]
            dual = place if isinstance(place, S) else place.dual
            if place is V:
                torch.testing.assert_close(torch.stack(pieces), gradient)
            else:
                read = reassemble(pieces, type_of(dual, grid, gradient.ndim), grid, tolerance=1e-9)
                torch.testing.assert_close(read, gradient)
    except (AssertionError, Unreadable):
        return False
    return True


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_function_is_right_on_ranks_of_a_world(case):
    assert agrees(case)


@pytest.mark.parametrize("case", [case for case in WRONG if case.name not in NEVER_DIFFERS], ids=lambda case: case.name)
def test_a_wrong_function_is_wrong_on_ranks_of_a_world(case):
    if case.name == "ulysses, dims swapped":
        with pytest.raises(RankFailure, match="invalid gradient"):
            agrees(case)
    else:
        assert not agrees(case)


@pytest.fixture
def group() -> Iterator[Any]:
    with fake_world(0, 2 * SIZE):
        yield init_device_mesh("cpu", (2, SIZE), mesh_dim_names=("dp", "tp")).get_group("tp")


def judged(case: Case, group: Any, *, known: bool) -> FunctionTransition:
    operands = []
    for shape, place in case.operands:
        local = [n // SIZE if isinstance(place, S) and at == place.dim else n for at, n in enumerate(shape)]
        operands.append(torch.ones(local))
    cls: Any = case.make(group)
    runs = FunctionRuns(cls, case.call(operands, group), cls.apply, dist.get_rank())
    letters = [letter(place) if known else "RIVP" for _, place in case.operands]
    return transition_of(runs, lambda axis: letters)


def meant(case: Case, results: int) -> Typing:
    return Typing("".join(letter(place) for _, place in case.operands), letter(case.result) * results)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("known", [True, False], ids=["typed", "untyped"])
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_function_has_the_transition_that_is_meant(case, group, known):
    found = judged(case, group, known=known)
    assert not found.unclear
    results = len(next(iter(found.ways)).results)
    assert meant(case, results) in found.ways
    assert found.never_waited is None
    if known:
        assert found.ways == {meant(case, results)}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("known", [True, False], ids=["typed", "untyped"])
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_a_wrong_function_has_none(case, group, known):
    found = judged(case, group, known=known)
    assert not found.unclear
    if case.name in NEVER_DIFFERS:
        assert found.never_waited is not None
    elif case.name == "copy with a maximum" and known:
        assert {way.results for way in found.ways} == {"I"}, "hands an invariant value on, and is no copy"
    elif case.name == "async linear, gradient not reduced" and not known:
        assert {way.operands for way in found.ways} == {"VII"}, "right for weights that are not sharded"
    else:
        assert not found.ways


def test_there_are_enough_functions_and_none_twice():
    names = [case.name for case in itertools.chain(RIGHT, WRONG)]
    assert len(set(names)) == len(names)
    assert len(RIGHT) >= 25
    assert len(WRONG) >= 25
    assert region_functions.R is R
    assert P in {case.operands[0][1] for case in RIGHT}


class Dealing(torch.autograd.Function):
    """Rows by a count that each rank has for itself, after a sum: what tokens for experts are."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group, ctx.rows = group, dist.get_rank(group) + 1
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total[: ctx.rows]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        whole = torch.cat([gradient, gradient.new_zeros(8 - ctx.rows, *gradient.shape[1:])])
        dist.all_reduce(whole, group=ctx.group)
        return whole, None


def test_a_function_whose_results_have_other_sizes_on_every_rank_is_searched_to_its_end(group):
    cls: Any = Dealing
    runs = FunctionRuns(cls, [torch.ones(8, 2), group], cls.apply, dist.get_rank())
    found = transition_of(runs, lambda axis: ["P"])
    assert found.axis is not None
    assert all(typing.results != "P" for typing in found.ways)


class OwnClasses(torch.autograd.Function):
    """Cross entropy over classes that are cut over the ranks, in single precision, as margin losses have it.

    What is summed lies in float32, so that it takes nothing else.

    ``label``  the class among the rank's own, -1 for rows of which another rank has the class.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, label: torch.Tensor, misses: bool, group: Any) -> torch.Tensor:
        shares = logits.exp()
        total = shares.sum(1, keepdim=True)
        dist.all_reduce(total, group=group)
        shares /= total
        (rows,) = torch.where(label[:, 0] != -1)
        own = torch.zeros(len(shares), 1)
        own[rows] = shares[rows].gather(1, label[rows])
        dist.all_reduce(own, group=group)
        ctx.save_for_backward(shares, rows, label)
        ctx.misses = misses
        return -own.log().mean()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        shares, rows, label = ctx.saved_tensors
        back = shares.clone()
        if not ctx.misses:
            back[rows] -= torch.zeros(len(rows), back.shape[1]).scatter_(1, label[rows], 1)
        return back / len(back) * gradient, None, None, None


@pytest.mark.parametrize("misses", [False, True])
@pytest.mark.parametrize("count", [7, 9])
def test_a_loss_in_single_precision_is_not_judged_by_its_roundings(group, count, misses):
    cls: Any = OwnClasses
    label = torch.tensor([row % 6 if row % 3 else -1 for row in range(count)]).view(-1, 1)
    runs = FunctionRuns(cls, [torch.randn(count, 6), label, misses, group], cls.apply, dist.get_rank())
    runs.complemented = True  # each row has its class on one rank
    found = transition_of(runs, lambda axis: ["V"])
    assert not found.unclear
    assert {way.results for way in found.ways} == (set() if misses else {"I"})
