"""Do types and DTensor placements translate, and does spmd_redistribute agree with DTensor's own redistribute?"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, distribute_tensor
from torch.distributed.tensor import Shard as DTensorShard

from shardwise import (
    I,
    P,
    R,
    S,
    SpmdTypeError,
    V,
    dtensor_placement_to_spmd_type,
    spmd_redistribute,
    spmd_type_to_dtensor_placement,
)
from shardwise.interop.torch_compat import fake_world
from shardwise.types import TensorSharding
from shardwise.worlds.world import run_processes


@pytest.mark.parametrize(
    ("placement", "expected"), [(R, Replicate()), (I, Replicate()), (S(2), DTensorShard(2)), (P, Partial("sum"))]
)
def test_a_type_has_its_placement(placement: Any, expected: Any):
    assert spmd_type_to_dtensor_placement(placement) == expected


@pytest.mark.parametrize(
    ("placement", "grad", "expected"),
    [
        (DTensorShard(1), None, S(1)),
        (Partial(), None, P),
        (Replicate(), None, I),
        (Replicate(), Replicate(), I),
        (Replicate(), Partial(), R),
    ],
)
def test_a_placement_has_its_type(placement: Any, grad: Any, expected: Any):
    assert dtensor_placement_to_spmd_type(placement, grad) == expected


@pytest.mark.parametrize("wrong", [V, None, "R"])
def test_what_has_no_placement_is_refused(wrong: Any):
    with pytest.raises(ValueError, match="no DTensor placement") as caught:
        spmd_type_to_dtensor_placement(wrong)
    assert caught.value.code == "SW905"


@pytest.mark.parametrize("wrong", [Partial("max"), Partial("avg"), None])
def test_a_placement_that_is_no_sum_is_refused(wrong: Any):
    with pytest.raises(ValueError, match="has no type here") as caught:
        dtensor_placement_to_spmd_type(wrong)
    assert caught.value.code == "SW905"


ENTRIES: list[tuple[Any, Any]] = [
    (None, None), ("dp", None), (None, "dp"), ("tp", None), (None, "tp"), ("dp", "tp"), ("tp", "dp"),
]  # fmt: skip


def placements(entries: tuple[Any, Any]) -> list[Any]:
    dims = {name: dim for dim, name in enumerate(entries) if name is not None}
    return [DTensorShard(dims[name]) if name in dims else Replicate() for name in ("dp", "tp")]


def every_pair() -> list[tuple[Any, Any, bool, bool, bool]]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = torch.arange(32.0).reshape(4, 8)
    outcome = []
    for before, after in itertools.product(ENTRIES, ENTRIES):
        x = distribute_tensor(whole, mesh, placements(before)).requires_grad_()
        y = spmd_redistribute(x, TensorSharding(*before), TensorSharding(*after))
        expected = x.detach().redistribute(mesh, placements(after))
        same = torch.equal(y.to_local(), expected.to_local()) and list(y.placements) == placements(after)
        weight = distribute_tensor(whole * 3, mesh, placements(after))
        (y * weight).to_local().sum().backward()
        right = x.grad is not None and torch.equal(x.grad.full_tensor(), whole * 3)
        outcome.append((before, after, same, right, (y is x) == (before == after)))
    return outcome


@pytest.mark.processes
def test_spmd_redistribute_agrees_with_dtensor_forward_and_backward():
    for rank in run_processes(every_pair, 4):
        assert len(rank) == len(ENTRIES) ** 2
        for before, after, same, right_gradient, returns_itself in rank:
            assert (same, right_gradient, returns_itself) == (True, True, True), f"{before} -> {after}"


@pytest.mark.parametrize(
    ("src", "dst", "kind", "code", "words"),
    [
        ((("dp", "tp"), None), ("dp", "tp"), NotImplementedError, "SW202", "one mesh dim per tensor dim"),
        ((None, "dp"), ("dp", None), SpmdTypeError, "SW201", r"src says .* on 'dp'"),
        (("pp", None), (None, None), ValueError, "SW902", "'pp'"),
        (("dp", "dp"), (None, None), ValueError, "SW131", "twice"),
    ],
)
def test_a_move_that_cannot_be_is_refused(src: Any, dst: Any, kind: Any, code: str, words: str):
    with fake_world(0, 4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        own = [DTensorShard(0), DTensorShard(0)] if src[0] == ("dp", "tp") else placements(("dp", None))
        x = distribute_tensor(torch.zeros(4, 8), mesh, own)
        with pytest.raises(kind, match=words) as caught:
            spmd_redistribute(x, TensorSharding(*src), TensorSharding(*dst))
        assert caught.value.code == code
