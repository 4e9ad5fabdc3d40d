"""What comes from the experts' mesh keeps its power of the axes' sizes where the dense mesh's axes are other ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import shardwise as spmd
from shardwise import MeshAxis, P, R, S
from shardwise.checker import typecheck

from .helpers import refused

FOLDINGS = [(2, 2), (2, 3), (3, 2)]
EXPERTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum": lambda x: x.sum(),
    "a mean": lambda x: x.mean(),
    "a sum divided by the rows": lambda x: x.sum() / x.size(0),
    "the square of rows": lambda x: x.square(),
    "rows over their number": lambda x: x / x.size(0),
}
DENSE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "times an equal value": lambda y, w: y * w,
    "over an equal value": lambda y, w: y / w,
    "times it and summed with itself": lambda y, w: y * w + y,
    "a matrix product": lambda y, w: y.reshape(-1, 1) @ w.reshape(1, 1),
}


def meshes(folding: tuple[int, int]) -> tuple[dict[str, MeshAxis], dict[str, MeshAxis]]:
    outer, inner = folding
    return {"dp": MeshAxis.of(outer * inner, 1)}, {"edp": MeshAxis.of(outer, inner), "ep": MeshAxis.of(inner, 1)}


@pytest.mark.parametrize("join", DENSE.values(), ids=DENSE)
@pytest.mark.parametrize("work", EXPERTS.values(), ids=EXPERTS)
@pytest.mark.parametrize("folding", FOLDINGS, ids=str)
def test_a_known_exponent_is_the_power_by_which_the_value_grows(
    folding: tuple[int, int], work: Callable[[Tensor], Tensor], join: Callable[[Tensor, Tensor], Tensor]
) -> None:
    dense, experts = meshes(folding)
    ranks = folding[0] * folding[1]
    rows = torch.rand(2 * ranks, 3, dtype=torch.float64) + 0.5
    equal = torch.rand((), dtype=torch.float64) + 0.5
    found = []
    for piece in rows.chunk(ranks):
        with typecheck(local=False):
            with spmd.set_current_mesh(experts):
                y = work(spmd.assert_type(piece.clone(), {}, spmd.PartitionSpec(("edp", "ep"), None)))
            with spmd.set_current_mesh(dense):
                found.append(join(y, spmd.assert_type(equal.clone(), {"dp": R}, spmd.PartitionSpec())))
                type = spmd.typeof(found[-1]).type
                assert set(type.axes) == {dense["dp"]}
                exponent, pending = type.exponent(dense["dp"]), type.is_partial(dense["dp"])
    assert exponent is not None
    values = torch.stack(found).sum(0) if pending else torch.cat(found)
    torch.testing.assert_close(values, float(ranks) ** exponent * join(work(rows), equal))


@pytest.mark.parametrize("folding", FOLDINGS, ids=str)
def test_a_mean_from_there_is_no_term_of_a_sum_from_here(folding: tuple[int, int]) -> None:
    dense, experts = meshes(folding)
    with typecheck(local=False):
        with spmd.set_current_mesh(experts):
            mean = spmd.assert_type(torch.rand(2, 3), {}, spmd.PartitionSpec(("edp", "ep"), None)).mean()
        with spmd.set_current_mesh(dense):
            sum = spmd.assert_type(torch.rand(()), {"dp": P})
            with refused("SW150"):
                _ = sum + mean


def test_shards_that_change_their_expert_and_come_back_are_on_the_scale() -> None:
    dense, experts = meshes((2, 2))
    with typecheck(local=False):
        with spmd.set_current_mesh(experts):
            done = spmd.assert_type(torch.rand(4, 2), {}, spmd.PartitionSpec(None, ("edp", "ep")))
        with spmd.set_current_mesh(dense):
            share = spmd.assert_type(torch.rand(4, 2), {"dp": S(1)})
            assert spmd.typeof((share * done).sum(0)).type.exponent(dense["dp"]) == 0
