"""Does a script for GPUs find, in a real world, what torchrun would have given it?"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed.device_mesh import init_device_mesh

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.worlds.failures import RankFailure
from shardwise.worlds.processes import run_processes
from shardwise.worlds.real_rank import real_world

pytestmark = pytest.mark.processes


def inside(script: Callable[[], Any]) -> Any:
    with real_world(command="verify", port=12345):
        return script()


def joins() -> tuple[Any, ...]:
    dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    x = torch.ones(2, device="cuda") * dist.get_rank()
    dist.all_reduce(x)
    pair = dist.new_group([0, 1], backend="nccl")
    mesh = device_mesh.init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
    return x.tolist(), dist.get_backend(), dist.get_backend(pair), mesh.device_type, os.environ["MASTER_PORT"]


def test_a_script_for_gpus_joins_the_gloo_group_on_the_cpu():
    expected = ([1.0, 1.0], "gloo", "gloo", "cpu", "12345")
    assert run_processes(inside, 2, joins) == [expected] * 2


def mesh_sizes(make: Callable[[], Any]) -> tuple[Any, ...]:
    mesh = make()
    return tuple(mesh.shape), mesh.mesh_dim_names, mesh["tp"].size(), mesh.get_local_rank("dp")


def by_sizes() -> Any:
    return device_mesh.init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))


MESHES = {
    "by sizes": by_sizes,
    "by a function imported before": lambda: init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp")),
    "by ranks": lambda: device_mesh.DeviceMesh("cuda", torch.arange(8).view(2, 4), mesh_dim_names=("dp", "tp")),
    "by a list": lambda: device_mesh.DeviceMesh("cuda", mesh=[[0, 1], [2, 3]], mesh_dim_names=("dp", "tp")),
}


@pytest.mark.parametrize("make", MESHES)
def test_alone_a_mesh_of_any_size_has_one_rank_along_every_axis(make):
    assert run_processes(inside, 1, lambda: mesh_sizes(MESHES[make])) == [((1, 1), ("dp", "tp"), 1, 0)]


def test_the_first_mesh_of_the_script_is_told_and_its_parts_are_not():
    def script() -> list[int]:
        told: list[int] = []
        with real_world(command="verify", port=1, on_mesh=lambda mesh: told.append(mesh.ndim)):
            mesh = (
                by_sizes() if dist.get_world_size() == 1 else init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
            )
            mesh[mesh.mesh_dim_names[0]].size()
        return told

    for ranks in (1, 2):
        assert run_processes(script, ranks) == [[2]] * ranks


def test_a_mesh_that_is_too_large_for_several_ranks_is_refused_with_the_arithmetic():
    with pytest.raises(RankFailure) as caught:
        run_processes(inside, 2, by_sizes)
    assert isinstance(caught.value.__cause__, SpmdValueError)
    assert "a mesh of 2 x 4 = 8 ranks does not fit into a world of 2" in str(caught.value)
    assert "shardwise verify --mesh with axes whose sizes multiply to 8" in str(caught.value)


def another_world() -> None:
    dist.init_process_group("nccl", world_size=4, rank=0)


def test_a_script_that_wants_another_world_is_told():
    with pytest.raises(RankFailure, match="asks for a world of 4 ranks, but the check runs with 2"):
        run_processes(inside, 2, another_world)


def wrapped() -> Any:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[0])
    model(torch.ones(1, 2) * (dist.get_rank() + 1)).sum().backward()
    return model.module.weight.grad.tolist()


def test_ddp_really_reduces():
    assert run_processes(inside, 2, wrapped) == [[[1.5, 1.5]]] * 2


def test_what_the_world_has_changed_is_undone():
    def before_and_after() -> bool:
        names = (dist.init_process_group, dist.new_group, torch.cuda.is_available, torch.load)
        variable = os.environ.get("WORLD_SIZE")
        with real_world(command="verify", port=1):
            pass
        after = (dist.init_process_group, dist.new_group, torch.cuda.is_available, torch.load)
        return names == after and os.environ.get("WORLD_SIZE") == variable

    assert run_processes(before_and_after, 1) == [True]


def gathers_pieces_of_several_sizes() -> tuple[Any, ...]:
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    pieces = [torch.empty(size, device="cuda") for size in (1, 3)]
    work = dist.all_gather(pieces, torch.full((1 + 2 * rank,), float(rank)), async_op=True)
    work.wait()
    again = [torch.empty_like(piece) for piece in pieces]
    dist.all_gather(again, pieces[rank])
    return [piece.tolist() for piece in pieces], [piece.tolist() for piece in again]


def test_pieces_of_several_sizes_are_gathered_as_nccl_gathers_them() -> None:
    expected = ([[0.0], [1.0, 1.0, 1.0]],) * 2
    assert run_processes(inside, 2, gathers_pieces_of_several_sizes) == [expected] * 2


def exchanges_by_lengths_in_tensors() -> list[float]:
    dist.init_process_group("nccl")
    lengths = torch.tensor([1, 2], device="cuda")
    given = torch.arange(3.0, device="cuda") + 10 * dist.get_rank()
    received = torch.empty(2 * (1 + dist.get_rank()), device="cuda")
    dist.all_to_all_single(received, given, torch.full((2,), 1 + dist.get_rank()), input_split_sizes=lengths)
    return received.tolist()


def test_an_exchange_takes_lengths_in_tensors() -> None:
    assert run_processes(inside, 2, exchanges_by_lengths_in_tensors) == [[0.0, 10.0], [1.0, 2.0, 11.0, 12.0]]


def reduces_with_a_factor() -> list[list[float]]:
    dist.init_process_group("nccl")
    half = dist.ReduceOp.PREMUL_SUM(0.5)
    whole = torch.full((2,), 2.0, device="cuda")
    dist.all_reduce(whole, op=half)
    piece, listed = torch.empty(1), torch.empty(1)
    dist.reduce_scatter_single(piece, torch.tensor([2.0, 4.0]), half)
    dist.reduce_scatter(listed, [torch.ones(1), torch.ones(1)], op=half, async_op=True).wait()
    largest = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return [x.tolist() for x in (whole, piece, listed, largest)]


def test_a_sum_is_scaled_first_as_nccl_scales_it() -> None:
    first, second = run_processes(inside, 2, reduces_with_a_factor)
    assert first == [[2.0, 2.0], [2.0], [1.0], [1.0]]
    assert second == [[2.0, 2.0], [4.0], [1.0], [1.0]]
