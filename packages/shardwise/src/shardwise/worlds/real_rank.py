"""How does a script written for GPUs run as one rank of a real job on this machine? ``real_world``, inside a process
of ``run_processes``.

The script finds what ``torchrun`` would have set and a process group that is there already; whatever backend and device
it asks for, it gets gloo and the CPU. Collectives really happen, so values are what they would be. In a world of one
rank a mesh has one rank along every axis, whatever sizes the script asks for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh

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
from shardwise.interop.torch_compat import CUT_AXIS, default_backend_everywhere, forget_dtensor_calls


@contextlib.contextmanager
def real_world(
    *, command: str, port: int, on_mesh: Callable[[object], None] = lambda mesh: None, joined: bool = True
) -> Iterator[TorchrunJob]:
    """Be the rank that the default process group says inside the ``with`` block.

    ``command``  the command of ours that runs the script, for what errors say.
    ``port``     MASTER_PORT, for stores that the script makes itself.
    ``on_mesh``  called with a device mesh that the script has made.
    ``joined``   the script finds a process group; else ``is_initialized`` is false until it makes one, or a mesh.
    """
    world = TorchrunJob(dist.get_world_size(), dist.get_rank(), command, port)
    forget_dtensor_calls()  # of the process that was forked
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(world.variables))
        stack.enter_context(patched(sys, "excepthook", sys.excepthook))  # torch replaces it when a group is made
        stack.enter_context(default_backend_everywhere())
        membership = Membership(joined)
        stack.enter_context(patched(dist, "is_initialized", membership.is_initialized(dist.is_initialized)))
        init = membership.joining(init_process_group_of(world, dist.init_process_group, backend="gloo", joined=True))
        for module in (dist, dist.distributed_c10d, device_mesh):
            stack.enter_context(patched(module, "init_process_group", init))
        for owner in (dist, device_mesh):
            mesh = owner.init_device_mesh
            if world.size > 1:
                mesh = init_device_mesh_of(world, mesh)
            stack.enter_context(patched(owner, "init_device_mesh", membership.joining(mesh)))
        kind = device_mesh.DeviceMesh
        stack.enter_context(patched(kind, "__init__", mesh_init_of(kind.__init__, on_mesh, alone=world.size == 1)))
        stack.enter_context(patched(kind, CUT_AXIS.attribute, cutting(vars(kind)[CUT_AXIS.attribute], on_mesh)))
        stack.enter_context(ranks_of_program(world))
        stack.enter_context(accelerator_redirected(Target(), world.local_rank, world.local_size))
        yield world
