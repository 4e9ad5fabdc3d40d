"""Steps that are taken without the sum that a wrapper owes, and gradients of which nobody has seen the making."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector
from shardwise.interop.tensors.tagging import type_of
from shardwise.interop.torch_compat import fake_world
from shardwise.types.tensor_type import TensorType
from shardwise.worlds.world import FakeWorld, InProcessWorld

from .helpers import refused


@pytest.fixture
def mesh() -> Iterator[Any]:
    with fake_world(0, 2):
        grid = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(grid):
            yield grid


def findings(wrapper: str, synchronised: list[bool], *, typed: bool, mesh: Any) -> tuple[Finding, ...]:
    """Of one step after a backward for each micro-batch."""
    collector = Collector()
    with checking(collect=collector, strict=typed):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        if typed:
            spmd.assert_type(list(model.parameters()), {"dp": R})
        wrapped: Any = DistributedDataParallel(model) if wrapper == "ddp" else fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
        for synchronises in synchronised:
            x = torch.randn(2, 4)
            if typed:
                spmd.assert_type(x, {"dp": S(0)})
            if wrapper == "fsdp":
                wrapped.set_requires_gradient_sync(synchronises)
            with nullcontext() if synchronises or wrapper == "fsdp" else wrapped.no_sync():
                loss = wrapped(x).square().sum()
                if typed:
                    loss = spmd.reinterpret(loss, "dp", src=V, dst=P)
                loss.backward()
        optimizer.step()
    return collector.result().findings


@pytest.mark.parametrize("micro_batches", [[False], [False, False]])
@pytest.mark.parametrize(("wrapper", "typed"), [("ddp", True), ("fsdp", True), ("fsdp", False)])
def test_a_wrapper_that_never_synchronises_owes_the_sum(
    mesh: Any, wrapper: str, typed: bool, micro_batches: list[bool]
) -> None:
    (finding,) = findings(wrapper, micro_batches, typed=typed, mesh=mesh)
    assert finding.code == "SW608"
    assert "0.weight" in finding.message
    owner = "DistributedDataParallel owes that sum" if wrapper == "ddp" else "fully_shard owes their sum over dp"
    assert owner in str(finding)


def test_what_was_kept_back_after_a_sum_is_owed_too(mesh: Any) -> None:
    (finding,) = findings("fsdp", [True, False], typed=False, mesh=mesh)
    assert finding.code == "SW608"


@pytest.mark.parametrize("micro_batches", [[True], [False, True], [True, True]])
@pytest.mark.parametrize("typed", [True, False])
def test_a_wrapper_that_synchronises_is_clean(mesh: Any, typed: bool, micro_batches: list[bool]) -> None:
    assert findings("fsdp", micro_batches, typed=typed, mesh=mesh) == ()


@pytest.mark.parametrize("synchronised", [[True, True], [False, True], [False, True, True]])
@pytest.mark.parametrize(("factor", "exponent"), [(1, -1), (2, 0)], ids=["a sum", "times the ranks"])
def test_a_wrapper_that_averages_in_several_backward_passes_keeps_the_type(
    synchronised: list[bool], factor: int, exponent: int
) -> None:
    found: list[TensorType] = []

    def program() -> None:
        grid = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(grid), checking(local=False):
            model = nn.Linear(4, 2)
            spmd.assert_type(list(model.parameters()), {"dp": R})
            wrapped = DistributedDataParallel(model)
            for synchronises in synchronised:
                x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0)})
                with nullcontext() if synchronises else wrapped.no_sync():
                    (wrapped(x).square().sum() * (dist.get_world_size() if factor > 1 else 1)).backward()
            assert model.weight.grad is not None
            found.append(type_of(model.weight.grad))

    FakeWorld(2, 0).run(program)
    (type,) = found
    (axis,) = type.axes
    assert type.get(axis) is R
    assert type.exponent(axis) == exponent


def weight() -> nn.Parameter:
    return spmd.assert_type(nn.Parameter(torch.randn(4)), {"dp": R})


def backward(w: torch.Tensor) -> None:
    x = spmd.assert_type(torch.randn(4), {"dp": V})
    spmd.reinterpret((w * x).sum(), "dp", src=V, dst=P).backward()


def test_a_gradient_that_nobody_has_seen_is_no_pass_where_types_are_asked_for(mesh: Any) -> None:
    w = weight()
    optimizer = torch.optim.SGD([w], 0.1)
    with typecheck():
        with spmd.no_typecheck():
            backward(w)
        with refused("SW615", "w"):
            optimizer.step()
        optimizer.step()  # told once
    w.grad = None
    backward(w)  # before the block
    with typecheck(), refused("SW615"):
        optimizer.step()
    with typecheck("permissive"):
        w.grad = None
        with spmd.no_typecheck():
            backward(w)
        optimizer.step()


def test_a_gradient_that_is_declared_is_known(mesh: Any) -> None:
    w = weight()
    optimizer = torch.optim.SGD([w], 0.1)
    with typecheck():
        with spmd.no_typecheck():
            backward(w)
            dist.all_reduce(w.grad)
        spmd.assert_type(w.grad, {"dp": R})
        optimizer.step()
        w.grad = None
        backward(w)
        dist.all_reduce(w.grad)
        optimizer.step()


@pytest.mark.parametrize(("all_reduces", "owed"), [([False], True), ([False, True], False), ([True, False], True)])
def test_shards_that_are_never_summed_over_replicas_are_owed(all_reduces: list[bool], owed: bool) -> None:
    """``set_requires_all_reduce(False)`` scatters over the shards, and keeps the addends of the replicas."""

    def program() -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        with spmd.set_current_mesh(mesh), checking(collect=collector, strict=False):
            model: Any = fully_shard(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), mesh=mesh)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for sums in all_reduces:
                model.set_requires_all_reduce(sums)
                model(torch.randn(2, 4)).square().sum().backward()
            optimizer.step()

    collector = Collector()
    FakeWorld(4, 0).run(program)
    found = collector.result().findings
    assert [finding.code for finding in found] == ["SW608"] * owed
    for finding in found:
        assert "fully_shard owes their sum over replicas" in finding.message
        assert any("set_requires_all_reduce(True)" in way for way in finding.help)


@pytest.mark.parametrize("keep", ["set_requires_all_reduce", "set_requires_gradient_sync"])
def test_a_model_whose_process_groups_are_gone_is_not_asked_for_them(keep: str) -> None:
    """A program that starts anew keeps its old model, whose sums nobody can make any more, beside the new one."""
    left: list[Any] = []

    def old() -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        model: Any = fully_shard(nn.Linear(4, 4), mesh=mesh)
        getattr(model, keep)(False)
        with spmd.set_current_mesh(mesh), checking(strict=False):
            model(torch.randn(2, 4)).square().sum().backward()
        left.append(model)

    def new() -> None:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(mesh), checking(collect=collector, strict=False):
            model: Any = fully_shard(nn.Linear(4, 4), mesh=mesh)
            model(torch.randn(2, 4)).square().sum().backward()
            torch.optim.SGD(model.parameters(), 0.1).step()

    collector = Collector()
    FakeWorld(4, 0).run(old)
    FakeWorld(2, 0).run(new)
    assert left
    assert collector.result().findings == ()


@pytest.mark.parametrize("sums", [True, False])
def test_what_is_never_summed_over_replicas_is_no_gradient_of_one_device(sums: bool) -> None:
    """The numbers behind the finding: the step changes nothing, or what one device's step changes."""
    torch.manual_seed(3)
    rows, weight = torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)

    def step(layer: Any, x: torch.Tensor) -> torch.Tensor:
        layer(x).square().mean().backward()
        torch.optim.SGD(layer.parameters(), 0.1).step()
        return getattr(layer.weight, "full_tensor", lambda: layer.weight)().detach()  # type: ignore[no-any-return]

    def layer() -> nn.Linear:
        made = nn.Linear(3, 2, bias=False, dtype=torch.float64)
        made.load_state_dict({"weight": weight})
        return made

    def rank() -> torch.Tensor:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        model: Any = fully_shard(layer(), mesh=mesh)
        model.set_requires_all_reduce(sums)
        return step(model, rows[dist.get_rank()][None])

    expected = step(layer(), rows)
    for found in InProcessWorld(4).run(rank):
        torch.testing.assert_close(found, expected if sums else weight)
