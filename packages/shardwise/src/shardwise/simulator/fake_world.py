"""How does one process stand in for a whole job? ``fake_world``: one rank of it runs, the others are imagined.

Scripts started by ``torchrun`` find what they look for: the rendezvous variables, ``init_process_group`` with any
backend, groups and device meshes. Every group uses PyTorch's fake backend, which moves no bytes: shapes and types are
right, values that should have come from other ranks are not. Everything is undone when the world ends.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh

from shardwise.interop.torch_compat import default_group_exists, fake_backend_everywhere, forget_groups
from shardwise.types.errors import SpmdTypeError, SpmdValueError

from .accelerator import Target, accelerator_redirected
from .patching import environment, patched

RANKS_PER_HOST = 8


@dataclass(frozen=True)
class World:
    """The job that is imagined, and which of its ranks is run."""

    size: int
    rank: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SpmdValueError(f"a world needs at least one rank, got {self.size}", code="SW903")
        if not 0 <= self.rank < self.size:
            raise SpmdValueError(
                f"rank {self.rank} is not in a world of {self.size}: ranks go from 0 to {self.size - 1}", code="SW903"
            )

    @property
    def local_size(self) -> int:
        """Ranks on this rank's host."""
        return min(self.size, RANKS_PER_HOST)

    @property
    def local_rank(self) -> int:
        """This rank's number on its host."""
        return self.rank % self.local_size

    @property
    def variables(self) -> dict[str, str]:
        """The environment that ``torchrun`` would have set for this rank."""
        host = self.rank // self.local_size
        hosts = math.ceil(self.size / self.local_size)
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "GROUP_RANK": str(host),
            "GROUP_WORLD_SIZE": str(hosts),
            "ROLE_RANK": str(self.rank),
            "ROLE_NAME": "default",
            "ROLE_WORLD_SIZE": str(self.size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": "shardwise",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }


@contextlib.contextmanager
def fake_world(
    rank: int,
    world_size: int,
    *,
    device: str = "cpu",
    fake: bool = False,
    joined: bool = False,
    on_mesh: Callable[[], None] = lambda: None,
) -> Iterator[World]:
    """Be rank ``rank`` of ``world_size`` inside the ``with`` block.

    ``device``   where tensors meant for an accelerator live: ``cpu``, or ``meta`` for shapes without storage.
    ``fake``     make fake tensors, so that nothing is allocated and nothing computed.
    ``joined``   the process group is there from the start; the program's first ``init_process_group`` is then a no-op.
    ``on_mesh``  called when the program has made a device mesh of its own.

    Errors: SW903 for a rank outside the world, or if this process has a process group already.
    """
    world = World(world_size, rank)
    if default_group_exists():
        raise SpmdTypeError("this process has a process group already, a fake world needs a fresh one", code="SW903")
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(world.variables))
        stack.enter_context(patched(sys, "excepthook", sys.excepthook))  # torch replaces it when a group is made
        stack.callback(forget_groups)
        stack.enter_context(fake_backend_everywhere())
        if joined:
            dist.init_process_group("fake", world_size=world.size, rank=world.rank)
        init = _init_process_group(world, dist.init_process_group, joined)
        for module in (dist, dist.distributed_c10d, device_mesh):
            stack.enter_context(patched(module, "init_process_group", init))
        for module in (dist, device_mesh):
            mesh = _init_device_mesh(world, module.init_device_mesh, on_mesh)
            stack.enter_context(patched(module, "init_device_mesh", mesh))
        stack.enter_context(patched(dist, "TCPStore", _store))
        for name in ("broadcast_object_list", "scatter_object_list"):
            replacement = _object_collective(world, name, getattr(dist, name))
            for module in (dist, dist.distributed_c10d):
                stack.enter_context(patched(module, name, replacement))
        stack.enter_context(
            accelerator_redirected(Target(device, fake), world.rank % world.local_size, world.local_size)
        )
        yield world


def _init_process_group(world: World, original: Callable[..., None], joined: bool) -> Callable[..., None]:
    """``init_process_group`` that takes whatever the script says and joins the fake world, unless that has happened."""

    @functools.wraps(original)
    def init_process_group(
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        *rest: Any,
        **options: Any,
    ) -> None:
        if world_size not in (-1, world.size):
            raise SpmdValueError(
                f"the script asks for a world of {world_size} ranks, but the check runs with {world.size}",
                code="SW903",
                help=(f"shardwise check --world-size {world_size}",),
            )
        if rank not in (-1, world.rank):
            raise SpmdValueError(
                f"the script says it is rank {rank}, but the check runs rank {world.rank}",
                code="SW903",
                help=(f"shardwise check --rank {rank}", 'take the rank from os.environ["RANK"]'),
            )
        nonlocal joined
        if joined:
            joined = False
            return
        original("fake", world_size=world.size, rank=world.rank)

    return init_process_group


def _init_device_mesh(world: World, original: Callable[..., Any], on_mesh: Callable[[], None]) -> Callable[..., Any]:
    """``init_device_mesh`` that shows the arithmetic when the mesh does not fit into the world."""

    @functools.wraps(original)
    def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *rest: Any, **options: Any) -> Any:
        needed = math.prod(mesh_shape)
        if needed > world.size:
            product = " x ".join(map(str, mesh_shape))
            raise SpmdValueError(
                f"a mesh of {product} = {needed} ranks does not fit into a world of {world.size}",
                code="SW903",
                help=(f"shardwise check --world-size {needed}",),
            )
        mesh = original(device_type, mesh_shape, *rest, **options)
        on_mesh()
        return mesh

    return init_device_mesh


def _store(*args: Any, **options: Any) -> Any:
    """``TCPStore`` for one process: a real one waits until every rank has come."""
    stores: Any = dist
    return stores.HashStore()


def _object_collective(world: World, name: str, original: Callable[..., None]) -> Callable[..., None]:
    """An object collective whose source is a rank that is not run: there is nothing to receive, so nothing changes."""

    @functools.wraps(original)
    def receive(*args: Any, **options: Any) -> None:
        position = {"broadcast_object_list": 1, "scatter_object_list": 2}[name]
        source = options.get("src", args[position] if len(args) > position else 0)
        if source in (None, world.rank):
            original(*args, **options)

    return receive
