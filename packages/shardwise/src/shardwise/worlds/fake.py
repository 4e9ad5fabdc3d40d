"""How does one process stand in for a whole job? ``fake_world``: one rank of it runs, the others are imagined.

Scripts started by ``torchrun`` find what they look for: the rendezvous variables, ``init_process_group`` with any
backend, groups and device meshes. Every group uses PyTorch's fake backend, which moves no bytes: shapes and types are
right, values that should have come from other ranks are not. Everything is undone when the world ends.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh

from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.host.accelerators.devices import accelerator_redirected
from shardwise.host.accelerators.redirected_calls import Target
from shardwise.host.attribute_patch import environment, patched
from shardwise.host.program_ranks import ranks_of_program
from shardwise.host.torchrun import (
    Membership,
    TorchrunJob,
    cutting,
    init_device_mesh_of,
    init_process_group_of,
    mesh_init_of,
)
from shardwise.interop.torch_compat import (
    CUT_AXIS,
    communication_hooks,
    default_backend_everywhere,
    default_group_exists,
    forget_dtensor_calls,
    forget_groups,
)
from shardwise.mesh.names import clear_names

from .absent_objects import absent_objects
from .imagined_exchange import exchanges_imagined
from .receive_source import sources_assumed


@contextlib.contextmanager
def fake_world(
    rank: int,
    world_size: int,
    *,
    device: str = "cpu",
    fake: bool = False,
    joined: bool = False,
    alone: bool = False,
    guessed: bool = False,
    on_mesh: Callable[[object], None] = lambda mesh: None,
    on_reduction: Callable[[torch.Tensor, object], None] | None = None,
) -> Iterator[TorchrunJob]:
    """Be rank ``rank`` of ``world_size`` inside the ``with`` block.

    ``device``   where tensors meant for an accelerator live: ``cpu``, or ``meta`` for shapes without storage.
    ``fake``     make fake tensors, so that nothing is allocated and nothing computed.
    ``joined``   the process group is there from the start; the program's first ``init_process_group`` is then a no-op.
    ``alone``    no other rank is run beside this one, so that one that waits for an object waits in vain.
    ``guessed``  the program may say how many ranks there are, and the world becomes as large.
    ``on_mesh``  called with a device mesh that the program has made.
    ``on_reduction``  called with a buffer and its group where a wrapper's own reducer would sum it.

    Errors: OtherRanksNeeded for a program that goes on with objects of others, SW903 for a rank outside the world, or
    if this process has a process group already.
    """
    world = TorchrunJob(world_size, rank, guessed=guessed)
    if default_group_exists():
        raise SpmdTypeError("this process has a process group already, a fake world needs a fresh one", code="SW903")
    forget_dtensor_calls()
    clear_names()  # of the axes of groups that an earlier program of this process has had
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(world.variables))
        stack.enter_context(patched(sys, "excepthook", sys.excepthook))  # torch replaces it when a group is made
        stack.callback(forget_groups)
        stack.enter_context(default_backend_everywhere())
        if joined:
            dist.init_process_group("fake", world_size=world.size, rank=world.rank)
        membership = Membership(joined=False)
        stack.enter_context(patched(dist, "is_initialized", membership.is_initialized(dist.is_initialized)))
        init = membership.joining(init_process_group_of(world, dist.init_process_group, backend="fake", joined=joined))
        for module in (dist, dist.distributed_c10d, device_mesh):
            stack.enter_context(patched(module, "init_process_group", init))
        for module in (dist, device_mesh):
            mesh = init_device_mesh_of(world, module.init_device_mesh)
            stack.enter_context(patched(module, "init_device_mesh", membership.joining(mesh)))
        kind = device_mesh.DeviceMesh
        stack.enter_context(patched(kind, "__init__", mesh_init_of(kind.__init__, on_mesh)))
        stack.enter_context(patched(kind, CUT_AXIS.attribute, cutting(vars(kind)[CUT_AXIS.attribute], on_mesh)))
        stack.enter_context(patched(dist, "TCPStore", _store))
        stack.enter_context(ranks_of_program(world))
        stack.enter_context(absent_objects(world, alone=alone))
        stack.enter_context(sources_assumed())
        if on_reduction is None:  # nobody delivers what other ranks send
            stack.enter_context(exchanges_imagined())
        parallel = torch.nn.parallel.DistributedDataParallel
        stack.enter_context(patched(parallel, "__init__", _reducing_nothing(parallel.__init__, on_reduction)))
        stack.enter_context(
            accelerator_redirected(Target(device, fake, imagined=True), world.rank % world.local_size, world.local_size)
        )
        yield world


def _store(*args: object, **options: object) -> object:
    """``TCPStore`` for one process: a real one waits until every rank has come."""
    stores: Any = dist
    return stores.HashStore()


def _reducing_nothing(original: Callable[..., object], tell: Callable[[torch.Tensor, object], None] | None) -> object:
    """``DistributedDataParallel.__init__`` whose reducer keeps each bucket: the fake backend's answer crashes it."""

    def kept(group: object, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        if tell is not None:
            tell(buffer, group)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    @functools.wraps(original)
    def init(self: Any, *args: object, **options: object) -> None:
        original(self, *args, **options)
        self.register_comm_hook(self.process_group, lambda group, bucket: kept(group, bucket.buffer()))
        # A reducer takes one hook. The program's own is noted and not run: it would wait for other ranks' buckets.
        self.register_comm_hook = lambda state, hook: communication_hooks(self).append((hook, state))

    return init
