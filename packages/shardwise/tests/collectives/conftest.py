"""A world of four ranks in which nothing can be sent: every communication fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from shardwise import set_current_mesh, set_dist
from shardwise.interop.torch_compat import fake_world

LOOK_UPS = {"get_rank", "get_world_size", "get_process_group_ranks"}


class NoTraffic:
    """Looks like torch.distributed, answers who is who, and refuses to move a byte."""

    def __getattr__(self, name: str) -> Any:
        if name in LOOK_UPS:
            return getattr(dist, name)

        def send(*args: Any, **kwargs: Any) -> None:
            raise AssertionError(f"torch.distributed.{name} was called before the arguments were checked")

        return send


@pytest.fixture
def tp() -> Iterator[None]:
    """Rank 1 of a current mesh with the one axis "tp" of four ranks, on the fake process group."""
    with fake_world(1, 4):
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        with set_current_mesh(mesh):
            yield


@pytest.fixture
def silent_tp(tp: None) -> Iterator[None]:
    """The same, with all traffic forbidden."""
    set_dist(NoTraffic())
    try:
        yield
    finally:
        set_dist(None)
