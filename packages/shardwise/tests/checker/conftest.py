"""A mesh of 2 x 4 ranks for checker tests: axes dp and tp, this process plays rank 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise.interop.torch_compat import fake_world

torch.set_num_threads(1)


@pytest.fixture
def mesh() -> Iterator[Any]:
    """The current mesh dp=2, tp=4 over PyTorch's fake process group."""
    with fake_world(0, 8):
        grid = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
        with spmd.set_current_mesh(grid):
            yield grid


@pytest.fixture
def tp_mesh() -> Iterator[Any]:
    """The current mesh tp=4 alone: types speak of one axis."""
    with fake_world(0, 4):
        grid = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        with spmd.set_current_mesh(grid):
            yield grid
