"""Modules whose parameters are moved by swapping contents: no weak reference of ours keeps them from it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import shardwise as spmd
from shardwise.checker.observation.coverage import counting
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.interop.torch_compat import fake_world


@pytest.fixture
def mesh() -> Iterator[Any]:
    with fake_world(1, 2):
        grid = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(grid):
            yield grid


def module_of_a_view(mesh: Any) -> nn.Linear:
    """Its weight is a part of a larger memory, as what a rank has cut out of a checkpoint."""
    module = nn.Linear(4, 8, bias=False)
    mine = torch.randn(16, 4)[8:]
    module.weight = nn.Parameter(DTensor.from_local(mine, mesh, [Shard(0)], run_check=False))
    return module


def test_what_shares_its_memory_is_moved(mesh):
    with checking(strict=False, collect=Collector(), observe=True):
        module = module_of_a_view(mesh)
        assert weakref.getweakrefs(module.weight), "it is remembered"
        assert module.to(torch.float64).weight.dtype is torch.float64


class Local(nn.Linear):
    """A layer that computes with this rank's part."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.to_local().t()


def test_so_is_what_has_been_called(mesh):
    observing = checking(strict=False, collect=Collector(), observe=True)
    with observing as session, counting(lambda coverage: None, session):
        module = Local(4, 8, bias=False)
        module.weight = nn.Parameter(DTensor.from_local(torch.randn(8, 4), mesh, [Shard(0)], run_check=False))
        with torch.no_grad():
            module(torch.randn(2, 4))
        assert weakref.getweakrefs(module.weight), "it is counted"
        assert module.to(torch.float64).weight.dtype is torch.float64


def test_a_reference_of_somebody_else_is_refused_as_ever(mesh):
    with checking(strict=False, collect=Collector(), observe=True):
        module = module_of_a_view(mesh)
        theirs = weakref.ref(module.weight)
        with pytest.raises(RuntimeError, match="Couldn't swap"):
            module.to(torch.float64)
        assert theirs() is module.weight
