"""Collectives over a part of an axis: types follow, sums that are not owed are found, and no type's axes overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.interop.tensors.tagging import type_of
from shardwise.mesh.axis import MeshAxis
from shardwise.mesh.regions import cut_along, put_together
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import FakeWorld, InProcessWorld

RANKS = 4
Groups = dict[str, Any]
Way = Callable[[list[torch.Tensor], Groups], None]


def groups_of_ranks() -> Groups:
    """The default group, those of neighbours, those across them, and one that is no part of an axis."""

    def own(several: list[list[int]]) -> Any:
        made = [dist.new_group(ranks) for ranks in several]
        return next(group for group, ranks in zip(made, several, strict=True) if dist.get_rank() in ranks)

    return {
        "all": dist.group.WORLD,
        "near": own([[0, 1], [2, 3]]),
        "far": own([[0, 2], [1, 3]]),
        "odd": own([[0, 3], [1, 2]]),
    }


def reduce(*names: str, average: bool = False) -> Way:
    def way(parameters: list[torch.Tensor], groups: Groups) -> None:
        for name in names:
            for parameter in parameters:
                dist.all_reduce(parameter.grad, group=groups[name])
            if average:
                for parameter in parameters:
                    parameter.grad /= dist.get_world_size(groups[name])  # type: ignore[operator]

    return way


def half_and_half(parameters: list[torch.Tensor], groups: Groups) -> None:
    """One half of each gradient over all ranks, the other one level by level."""
    for parameter in parameters:
        flat: Any = parameter.grad.view(-1)  # type: ignore[union-attr]
        dist.all_reduce(flat[:2])
        dist.all_reduce(flat[2:], group=groups["far"])
        dist.all_reduce(flat[2:], group=groups["near"])


def scattered_within(parameters: list[torch.Tensor], groups: Groups) -> None:
    """Hybrid sharding: pieces within neighbours, whose sums are made across, and gathered again."""
    for parameter in parameters:
        piece = torch.empty(2)
        dist.reduce_scatter_tensor(piece, parameter.grad, group=groups["near"])
        dist.all_reduce(piece, group=groups["far"])
        dist.all_gather_into_tensor(parameter.grad, piece, group=groups["near"])


RIGHT: dict[str, Way] = {
    "over all": reduce("all"),
    "near, then far": reduce("near", "far"),
    "far, then near": reduce("far", "near"),
    "half and half": half_and_half,
    "scattered within": scattered_within,
}

WRONG: dict[str, tuple[Way, str]] = {
    "near only": (reduce("near"), "SW608"),
    "far only": (reduce("far"), "SW608"),
    "near twice": (reduce("near", "near"), "SW605"),
    "near and all": (reduce("near", "all"), "SW605"),
    "all and near": (reduce("all", "near"), "SW605"),
    "all and far": (reduce("all", "far"), "SW605"),
    "all and odd": (reduce("all", "odd"), "SW605"),
}


def gradients(way: Way | None) -> list[torch.Tensor]:
    """Of two parameters, on this rank."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 4, generator=generator)
    a, b = (nn.Parameter(torch.randn(4, generator=generator)) for _ in range(2))
    groups = {} if way is None else groups_of_ranks()
    if way is not None:
        x = x.chunk(RANKS)[dist.get_rank()]
    ((x * a).tanh() * b).sum().backward()
    if way is not None:
        way([a, b], groups)
    return [a.grad.clone(), b.grad.clone()]  # type: ignore[union-attr]


def is_right(way: Way) -> bool:
    wanted = gradients(None)
    found = InProcessWorld(RANKS).run(gradients, way)
    return all(
        torch.allclose(one, other, atol=1e-5) for ranks in found for one, other in zip(ranks, wanted, strict=True)
    )


def check(way: Way, rank: int = 0) -> tuple[RunResult, list[TensorType]]:
    """What is found, and the types that the gradients had."""
    collector, types = Collector(), []

    def program() -> None:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        groups = groups_of_ranks()
        with spmd.set_current_mesh(mesh), checking(collect=collector):
            a, b = (spmd.assert_type(nn.Parameter(torch.randn(4)), {"dp": R}) for _ in range(2))
            x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0)})
            loss = ((x * a).tanh() * b).sum()
            spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
            way([a, b], groups)
            types.extend(type_of(parameter.grad) for parameter in (a, b))
            torch.optim.SGD([a, b], 0.1).step()

    FakeWorld(RANKS, rank).run(program)
    return collector.result(), types


@pytest.mark.parametrize("name", RIGHT)
def test_sums_level_by_level_are_clean(name: str) -> None:
    for rank in range(RANKS):
        result, types = check(RIGHT[name], rank)
        assert not result.findings, [str(finding) for finding in result.findings]
        assert [(type.placements, type.axes[0].size()) for type in types] == [((R,), RANKS)] * 2


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("name", WRONG)
def test_a_sum_over_a_part_that_is_not_owed_or_not_enough_is_found(name: str) -> None:
    way, code = WRONG[name]
    for rank in range(RANKS):
        result, types = check(way, rank)
        assert {finding.code for finding in result.findings} == {code}, [str(finding) for finding in result.findings]
        assert all(not type.axes or type.axes[0].isorthogonal(*type.axes[1:]) for type in types)


@pytest.mark.processes
@pytest.mark.parametrize("name", RIGHT)
def test_right_numbers(name: str) -> None:
    assert is_right(RIGHT[name])


@pytest.mark.processes
@pytest.mark.parametrize("name", WRONG)
def test_wrong_numbers(name: str) -> None:
    assert not is_right(WRONG[name][0])


@pytest.mark.parametrize("part", [(2, 1), (2, 2), (4, 2), (2, 4), (4, 1)])
@pytest.mark.parametrize("place", [R, I, V, P])
def test_a_type_that_is_cut_and_put_together_is_the_same(part: tuple[int, int], place: Any) -> None:
    whole, other = MeshAxis.of(8, 1), MeshAxis.of(2, 8)
    before = TensorType.of({whole: place, other: R})
    cut = cut_along(before, MeshAxis.of(*part))
    assert MeshAxis.of(*part) in cut
    assert whole not in cut
    assert cut.axes[0].isorthogonal(*cut.axes[1:])
    assert put_together(cut, [whole, other]) is before


def test_what_is_no_part_leaves_nothing_known() -> None:
    odd = MeshAxis.of(2, 3)
    cut = cut_along(TensorType.of({MeshAxis.of(4, 1): R, MeshAxis.of(2, 4): P}), odd)
    assert odd not in cut
    assert not cut.local.keys() & {MeshAxis.of(4, 1)}


def shared_by_neighbours(read: Callable[[str, torch.Tensor], None], *, typed: bool) -> None:
    """Means of two neighbours meet what each rank has and what all have."""
    groups = groups_of_ranks()
    whole = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    x, scale = whole.chunk(RANKS)[dist.get_rank()].clone().requires_grad_(), torch.ones(3, requires_grad=True)
    if typed:
        x, scale = spmd.assert_type(x, {"dp": S(0)}), spmd.assert_type(scale, {"dp": R})
    mean = x.detach().mean(0)
    dist.all_reduce(mean, group=groups["near"])
    scaled = mean * scale
    read("of the neighbours", scaled)
    read("of each", x - mean)
    total = scaled.detach() / 2
    dist.all_reduce(total, group=groups["far"])
    read("of all", total)


def read_of(rank: int = 0, *, strict: bool = False, local: bool = True) -> tuple[dict[str, TensorType], RunResult]:
    collector, types = Collector(), dict[str, TensorType]()

    def program() -> None:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(mesh), checking(strict=strict, local=local, collect=collector):
            shared_by_neighbours(lambda name, x: types.update({name: type_of(x)}), typed=True)

    FakeWorld(RANKS, rank).run(program)
    return types, collector.result()


def test_what_a_part_of_an_axis_shares_meets_what_is_typed_along_the_whole() -> None:
    near, far, whole = MeshAxis.of(2, 1), MeshAxis.of(2, 2), MeshAxis.of(4, 1)
    for rank in range(RANKS):
        types, result = read_of(rank)
        assert not result.findings, [str(finding) for finding in result.findings]
        assert {name: type.local for name, type in types.items()} == {
            "of the neighbours": {near: R, far: V},
            "of each": {whole: V},
            "of all": {whole: R},
        }


@pytest.mark.processes
def test_what_is_said_of_parts_of_an_axis_is_so() -> None:
    def values() -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        shared_by_neighbours(lambda name, x: found.update({name: x.detach().clone()}), typed=False)
        return found

    ranks = InProcessWorld(RANKS).run(values)
    alike = {name: [torch.equal(ranks[0][name], other[name]) for other in ranks] for name in ranks[0]}
    assert alike == {
        "of the neighbours": [True, True, False, False],
        "of each": [True, False, False, False],
        "of all": [True] * RANKS,
    }


def test_where_types_have_to_be_said_a_part_of_an_axis_has_to_be_too() -> None:
    _, result = read_of(strict=True)
    assert {finding.code for finding in result.findings} == {"SW133"}


def test_global_types_see_that_the_neighbours_have_not_what_one_device_has() -> None:
    _, result = read_of(local=False)
    assert [finding.code for finding in result.findings][:1] == ["SW110"]
