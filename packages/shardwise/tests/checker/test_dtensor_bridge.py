"""What may become a DTensor as what, and what comes out of one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shardwise as spmd
from shardwise.checker import typecheck
from shardwise.interop.torch_compat import forget_dtensor_calls

from .helpers import make, operand, place, refused


@pytest.mark.parametrize(
    ("placement", "grad", "letter"),
    [
        (Shard(0), None, "V"),
        (Replicate(), None, "I"),
        (Replicate(), Partial(), "R"),
        (Partial(), None, "P"),
        (Partial("max"), None, "P(max)"),
        (Partial("avg"), None, ""),
    ],
)
def test_a_local_tensor_is_what_the_placements_say(tp_mesh: Any, placement: Any, grad: Any, letter: str) -> None:
    x = DTensor.from_local(torch.ones(4, 4), tp_mesh, [placement], run_check=False)
    with typecheck():
        assert place(x.to_local(grad_placements=[grad] if grad else None)) == letter


@pytest.mark.parametrize(
    ("letter", "grad", "placement", "admitted"),
    [
        ("V", False, Shard(0), True),
        ("P", False, Partial(), True),
        ("V", False, Partial(), True),
        ("I", True, Replicate(), True),
        ("R", False, Replicate(), True),
        ("R", True, Replicate(), False),
        ("P", False, Replicate(), False),
        ("P", False, Shard(0), False),
        ("R", False, Shard(0), False),
        ("R", False, Partial(), False),
    ],
)
def test_a_typed_tensor_becomes_a_dtensor_only_as_what_it_is(
    tp_mesh: Any, letter: str, grad: bool, placement: Any, admitted: bool
) -> None:
    x = make(letter, grad=grad)
    with typecheck():
        if admitted:
            DTensor.from_local(x, tp_mesh, [placement])
        else:
            with refused("SW130", "from_local reads x as"):
                DTensor.from_local(x, tp_mesh, [placement])


def test_an_untyped_tensor_is_believed(tp_mesh: Any) -> None:
    with typecheck():
        x = distribute_tensor(torch.ones(4, 4), tp_mesh, [Shard(0)])
        assert place(x.to_local()) == "V"
        assert place(x.full_tensor()) == "I"


def test_a_model_of_dtensors_takes_and_gives_typed_tensors(tp_mesh: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    parallelize_module(model, tp_mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = spmd.assert_type(torch.ones(2, 8), {"tp": spmd.I})
    with typecheck():
        y = model(x)
        assert place(y) == "I"
        y.sum().backward()


def test_an_axis_that_the_dtensor_does_not_speak_of_is_unknown_until_somebody_says(mesh: Any) -> None:
    x = DTensor.from_local(torch.ones(4, 4), mesh["tp"], [Shard(0)], run_check=False)
    with typecheck():
        y = torch.relu(x.to_local())
        assert place(y) == "V"
        assert spmd.get_axis_local_type(spmd.assert_type(y, {"dp": spmd.R}), "dp") is spmd.R


def test_placements_and_specs_say_which_dim_is_sharded_by_the_same_word(mesh: Any) -> None:
    x = operand("f32[8@(dp,tp), 4]")
    with typecheck(local=False):
        made = DTensor.from_local(x, mesh, [Shard(0), Shard(0)], run_check=False)
        assert str(spmd.typeof(made.to_local())) == "f32[8@(dp,tp), 4]"
        with refused("SW130", "Shard(dim=1)", "S(0)", "tp"):
            DTensor.from_local(x, mesh, [Shard(0), Shard(1)], run_check=False)


@pytest.mark.parametrize(("rows", "typed"), [(8, "f32[2@tp, 3]"), (9, "f32[3@~tp, 3]")])
def test_a_dim_that_the_ranks_do_not_divide_has_uneven_shards(tp_mesh: Any, rows: int, typed: str) -> None:
    shape = torch.Size((rows, 3))
    piece = torch.ones(-(-rows // 4), 3)
    x = DTensor.from_local(piece, tp_mesh, [Shard(0)], run_check=False, shape=shape, stride=(3, 1))
    with typecheck(local=False):
        assert str(spmd.typeof(x.to_local())) == typed


def test_numbers_by_which_dtensor_compares_placements_have_no_types(
    tp_mesh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_dtensor_calls()
    given: list[type] = []
    with typecheck(), monkeypatch.context() as patched:
        told = DeviceMesh.size

        def size(mesh: DeviceMesh, mesh_dim: int | None = None) -> int:
            given.append(told(mesh, mesh_dim).__class__)
            return told(mesh, mesh_dim)

        patched.setattr(DeviceMesh, "size", size)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        given.clear()
        torch.linalg.vector_norm(x + x)
        assert set(given) == {int}
        mesh.size()
        assert given[-1] is not int
