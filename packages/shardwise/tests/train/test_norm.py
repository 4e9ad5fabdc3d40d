"""Is the norm of gradients that lie about on a mesh that of one device which has them all?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.result import Collector
from shardwise.train.norm import clip_grad_norm_, grad_norm
from shardwise.worlds.world import InProcessWorld, ProcessWorld

RANKS = 8
POWERS = (1.0, 2.0, 3.0, math.inf)
NAMES = ("a", "b", "c")


def factorisations(number: int, longest: int) -> Iterator[tuple[int, ...]]:
    """Ordered ways to write ``number`` as at most ``longest`` factors above 1."""
    if number == 1:
        yield ()
    elif longest:
        for first in range(2, number + 1):
            if number % first == 0:
                yield from ((first, *rest) for rest in factorisations(number // first, longest - 1))


MESHES = [sizes for sizes in factorisations(RANKS, 3) if sizes]


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uneven(whole: torch.Tensor, parts: int, dim: int, here: int) -> torch.Tensor:
    """Piece ``here`` of ``parts`` that grow in length: 1, 2, 3, .. rows; the last one has what is left."""
    start = here * (here + 1) // 2
    length = max(whole.shape[dim] - start, 0) if here == parts - 1 else min(here + 1, whole.shape[dim])
    return whole.narrow(dim, start, length)


def held(mesh: Any, whole: torch.Tensor, places: Sequence[Any]) -> torch.Tensor:
    """This rank's part of ``whole`` as a typed parameter, whose gradient is its value."""
    mine = whole
    for name, place in zip(mesh.mesh_dim_names, places, strict=True):
        if isinstance(place, spmd.Shard):
            mine = uneven(mine, mesh[name].size(), place.dim, mesh.get_local_rank(name))
    parameter = torch.nn.Parameter(mine.clone())
    local = [V if isinstance(place, spmd.Shard) else place for place in places]
    spmd.assert_type(parameter, dict(zip(mesh.mesh_dim_names, local, strict=True)))
    parameter.grad = mine.clone()
    return parameter


def model(mesh: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Parameters of every mixture of types, and the whole gradients that they are made of."""
    parameters, wholes = [], []
    choices = [(R, I, S(0)), (I, R, S(1)), (R, I, S(0))][: mesh.ndim]
    for seed, places in enumerate(itertools.product(*choices)):
        wholes.append(numbers(seed, 37, 30))
        parameters.append(held(mesh, wholes[-1], places))
    for seed, placements in enumerate(itertools.product((Replicate(), Shard(0)), repeat=mesh.ndim)):
        wholes.append(numbers(100 + seed, 5, 3))  # five rows: some ranks have none
        parameter = torch.nn.Parameter(distribute_tensor(wholes[-1], mesh, placements))
        parameter.grad = distribute_tensor(wholes[-1].clone(), mesh, placements)
        parameters.append(parameter)
    return parameters, wholes


def norms_on(mesh: Any, *, check: bool) -> list[tuple[float, float]]:
    """The norm here and of the whole, for every power; then of the gradients that clipping leaves."""
    found = []
    with spmd.set_current_mesh(mesh):
        parameters, wholes = model(mesh)
    with spmd.set_current_mesh(mesh), typecheck() if check else nullcontext(), torch.no_grad():
        for power in POWERS:
            expected = torch.nn.utils.get_total_norm(wholes, power)
            found.append((grad_norm(parameters, power).item(), expected.item()))
        scaled = [torch.nn.Parameter(whole) for whole in wholes]
        for one, whole in zip(scaled, wholes, strict=True):
            one.grad = whole.clone()
        torch.nn.utils.clip_grad_norm_(scaled, 0.5)
        clip_grad_norm_(parameters, 0.5)
        found += [
            (grad_norm([mine]).item(), one.grad.norm().item()) for mine, one in zip(parameters, scaled, strict=True)
        ]
    return found


def on_every_mesh(check: bool) -> dict[tuple[int, ...], list[tuple[float, float]]]:
    return {
        sizes: norms_on(init_device_mesh("cpu", sizes, mesh_dim_names=NAMES[: len(sizes)]), check=check)
        for sizes in MESHES
    }


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_norm_and_clipping_are_those_of_one_device_on_every_mesh_of_eight_ranks(check: bool) -> None:
    assert len(MESHES) == 4
    results = InProcessWorld(RANKS).run(on_every_mesh, check)
    for sizes in MESHES:
        of_ranks = [result[sizes] for result in results]
        assert all(one == of_ranks[0] for one in of_ranks), f"the ranks of {sizes} disagree"
        for here, whole in of_ranks[0]:
            assert here == pytest.approx(whole, rel=1e-6, abs=0), sizes


def on_processes() -> list[tuple[float, float]]:
    return norms_on(init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")), check=False)


@pytest.mark.processes
def test_processes_agree_with_one_device() -> None:
    for result in ProcessWorld(4).run(on_processes):
        for here, whole in result:
            assert here == pytest.approx(whole, rel=1e-6, abs=0)


def alone(body: Callable[[Any], Any], sizes: tuple[int, ...] = (2, 2), names: tuple[str, ...] = ("dp", "tp")) -> Any:
    """What ``body(mesh)`` gives on every rank of a mesh, which is current."""

    def rank() -> Any:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        with spmd.set_current_mesh(mesh):
            return body(mesh)

    return InProcessWorld(math.prod(sizes)).run(rank)


def weight(mesh: Any, places: dict[str, Any], *shape: int) -> torch.Tensor:
    return spmd.assert_type(torch.nn.Parameter(torch.ones(shape or (4,), dtype=torch.float64)), places)


@pytest.mark.parametrize("present", [(), (0,), (1, 2)])
def test_ranks_without_a_gradient_issue_the_same_collectives(present: tuple[int, ...]) -> None:
    def body(mesh: Any) -> float:
        rows, scale = weight(mesh, {"dp": R, "tp": S(0)}), weight(mesh, {"dp": S(0), "tp": I})
        if dist.get_rank() in present:
            rows.grad = torch.ones_like(rows)
        if dist.get_rank() == 0:
            scale.grad = None
        return grad_norm([rows, scale], 1.0).item()

    results = alone(body)
    by_dp = [4.0 * sum(rank in present for rank in line) for line in ((0, 1), (2, 3))]
    assert results == [by_dp[0], by_dp[0], by_dp[1], by_dp[1]]


def test_one_collective_is_issued_per_axis_over_which_something_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def body(mesh: Any) -> None:
        parameters = [weight(mesh, {"dp": a, "tp": b, "pp": R}) for a in (R, I, V) for b in (R, I, V)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        grad_norm(parameters)

    plain = dist.all_reduce

    def noted(tensor: torch.Tensor, op: Any, group: Any) -> None:
        if dist.get_rank() == 0:
            calls.append((tensor.numel(), dist.get_process_group_ranks(group)[1]))
        plain(tensor, op=op, group=group)

    monkeypatch.setattr("shardwise.interop.communication.backend.current.all_reduce", noted)
    alone(body, (2, 2, 2), ("pp", "dp", "tp"))
    assert calls == [(2, 1), (1, 2)]  # over tp what is split over it and over both, then over dp


def test_stages_of_a_pipeline_have_parameters_of_their_own() -> None:
    def body(mesh: Any) -> float:
        stage = mesh.get_local_rank("pp")
        places = [{"pp": R, "tp": S(0)}, {"pp": R, "tp": I}][stage]
        parameters = [weight(mesh, {"tp": places["tp"]}, 3 + stage)]
        parameters[0].grad = torch.ones_like(parameters[0])
        return grad_norm(parameters, over=["pp"]).item()

    assert alone(body, (2, 2), ("pp", "tp")) == [pytest.approx(math.sqrt(2 * 3 + 4))] * 4


def test_a_parameter_that_is_given_twice_counts_once() -> None:
    def body(mesh: Any) -> float:
        tied = weight(mesh, {"dp": R, "tp": S(0)})
        tied.grad = torch.ones_like(tied)
        return grad_norm([tied, tied], 1.0).item()

    assert alone(body) == [8.0] * 4


def test_gradients_in_low_precision_are_measured_in_float32_and_sparse_ones_by_their_entries() -> None:
    def body(mesh: Any) -> tuple[float, torch.dtype, float, torch.Tensor]:
        small = spmd.assert_type(torch.nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16)), {"dp": R, "tp": V})
        small.grad = torch.ones_like(small)
        table = spmd.assert_type(torch.nn.Parameter(torch.zeros(4, 2)), {"dp": R, "tp": R})
        table.grad = torch.sparse_coo_tensor([[1, 1]], torch.ones(2, 2), (4, 2), check_invariants=True)
        norm = grad_norm([small])
        return norm.item(), norm.dtype, clip_grad_norm_([table], 1.0).item(), table.grad.to_dense().sum()

    for norm, dtype, of_table, left in alone(body):
        assert (norm, dtype) == (pytest.approx(math.sqrt(2000)), torch.float32)
        assert of_table == pytest.approx(math.sqrt(8))  # the row is there twice, and adds up
        assert left.item() == pytest.approx(4 / math.sqrt(8))


def test_nothing_and_no_gradients_have_the_norm_zero() -> None:
    assert grad_norm([]).item() == grad_norm(torch.nn.Parameter(torch.ones(2))).item() == 0.0


@pytest.mark.parametrize("power", [2.0, math.inf])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_refused_on_all_ranks_on_request(power: float, value: float) -> None:
    def body(mesh: Any) -> str:
        rows = weight(mesh, {"dp": R, "tp": S(0)})
        rows.grad = torch.full_like(rows, value if mesh.get_local_rank("tp") else 1.0)
        with pytest.raises(RuntimeError, match="error_if_nonfinite=True"):
            grad_norm([rows], power, error_if_nonfinite=True)
        return str(math.isfinite(grad_norm([rows], power).item()))

    assert alone(body) == ["False"] * 4


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
def test_under_the_check_the_norm_is_replicate_and_gradients_keep_their_types(local: bool) -> None:
    def body(mesh: Any) -> None:
        collector = Collector()
        with checking(local=local, collect=collector):
            rows, scale = weight(mesh, {"dp": R, "tp": S(0)}, 4, 2), weight(mesh, {"dp": R, "tp": I}, 2)
            h = spmd.convert(scale, "tp", src=I, dst=R)
            x = spmd.assert_type(torch.ones(3, 2, dtype=torch.float64), {"dp": S(0), "tp": R})
            loss = spmd.all_reduce(((x * h) @ rows.T).square().sum(), "tp", src=P, dst=I)
            (spmd.reinterpret(loss, "dp", src=V, dst=P) if local else loss).backward()
            for parameter in (rows, scale):
                dist.all_reduce(parameter.grad, group=mesh.get_group("dp"))
            before = [spmd.get_local_type(parameter.grad) for parameter in (rows, scale)]
            norm = clip_grad_norm_([rows, scale], 1.0)
            assert spmd.get_local_type(norm) == {spmd.normalize_axis(name): R for name in ("dp", "tp")}
            assert [spmd.get_local_type(parameter.grad) for parameter in (rows, scale)] == before
            with torch.no_grad():
                rows.grad.mul_(1.0 / norm)
        assert [str(finding) for finding in collector.result().findings] == []

    alone(body)


def refused(code: str, words: str, body: Callable[[Any], Any]) -> None:
    """``body(mesh)`` is refused with ``code`` and these words."""

    def rank(mesh: Any) -> None:
        with pytest.raises(SpmdTypeError, match=words) as caught:
            body(mesh)
        assert caught.value.code == code

    alone(rank)


def test_a_pending_sum_is_refused_with_the_names_of_the_parameters() -> None:
    def body(mesh: Any) -> None:
        layer = torch.nn.Linear(2, 2)
        spmd.assert_type(list(layer.parameters()), {"dp": R, "tp": I})
        with typecheck():
            x = spmd.assert_type(torch.ones(1, 2), {"dp": S(0), "tp": I})
            spmd.reinterpret(layer(x).sum(), "dp", src=V, dst=P).backward()
            clip_grad_norm_(layer.parameters(), 1.0)

    refused("SW610", "clip_grad_norm_ takes the gradients of weight, bias, which are not summed over dp", body)


def test_a_partial_dtensor_is_refused_without_a_check() -> None:
    def body(mesh: Any) -> None:
        parameter = torch.nn.Parameter(distribute_tensor(torch.ones(4), mesh, (Replicate(), Replicate())))
        parameter.grad = DTensor.from_local(torch.ones(4), mesh, (Replicate(), Replicate()))
        partial = dist.tensor.Partial()
        gradient = DTensor.from_local(torch.ones(4), mesh, (Replicate(), partial))
        parameter.grad = gradient
        grad_norm([parameter])

    refused("SW610", "not summed over tp", body)


def test_a_parameter_of_which_nothing_is_declared_is_refused() -> None:
    refused("SW613", "nothing is declared along tp", lambda mesh: grad_norm([weight(mesh, {"dp": R})]))


@pytest.mark.parametrize("power", [0, -1.0, math.nan, "two", None])
def test_what_is_no_power_is_refused(power: Any) -> None:
    refused("SW905", "norm_type is a number above 0", lambda mesh: grad_norm([weight(mesh, {"dp": R, "tp": R})], power))


def test_what_is_no_tensor_and_no_bound_is_refused() -> None:
    refused("SW905", "parameters are tensors, got one of type str", lambda mesh: grad_norm(["weight"]))
    refused("SW905", "max_norm is a number", lambda mesh: clip_grad_norm_([], "1"))


def test_an_axis_without_a_group_is_refused() -> None:
    def body(mesh: Any) -> None:
        rows = torch.nn.Parameter(torch.ones(2))
        grad_norm([spmd.assert_type(rows, {spmd.MeshAxis.of(4, 1): V})])

    refused("SW211", "is not in the current mesh. The mesh has process groups for dp, tp", body)
