"""What does a program find on a launched rank? What the launcher has set, and the devices that are there.

Where there is no accelerator a script for GPUs gets gloo and the CPU; otherwise nothing is redirected.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shardwise.host.accelerators.devices import accelerator_redirected
from shardwise.host.accelerators.redirected_calls import Target
from shardwise.host.attribute_patch import patched
from shardwise.host.launcher import LaunchedRank
from shardwise.host.torchrun import Membership
from shardwise.interop.torch_compat import default_backend_everywhere, is_part_of_mesh
from shardwise.mesh.entry import set_current_entry
from shardwise.mesh.program import MeshFollower
from shardwise.oracle.reassemble import Grid

Axes = Mapping[str, int]


@contextlib.contextmanager
def launched_world(
    me: LaunchedRank, sizes: Axes | None, on_mesh: Callable[[dict[str, int]], None], *, joined: bool = False
) -> Iterator[object]:
    """Be rank ``me`` inside the block; it gives the device mesh of these ``sizes``, or None without any.

    The mesh is current until the program makes one of its own. On accelerators it has groups from when the program has
    made the default group, and is not given unless ``joined``.
    ``on_mesh``  is told the axes and sizes of every mesh that the script makes, whose ranks are numbered in its order.
    ``joined``   the script finds a process group; else ``is_initialized`` is false until it makes one, or a mesh.
    """
    own = False
    follower = MeshFollower()

    def told(mesh: DeviceMesh) -> None:
        if own:
            return
        ranks = mesh.mesh
        names = mesh.mesh_dim_names or [f"dim_{dim}" for dim in range(ranks.ndim)]
        if ranks.flatten().tolist() == list(range(ranks.numel())):
            on_mesh(dict(zip(names, ranks.shape, strict=True)))
        follower.made(mesh)

    def begin(device: str) -> object:
        """The mesh of the command line becomes current."""
        nonlocal own
        assert sizes is not None, "there is a mesh to begin with"
        own = True
        made = init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        own = False
        follower.start(made)
        return made

    # Groups have the back end that the program asks for, so they wait for it; and of the CPU, which sets no device:
    # which one a rank takes is the program's business too.
    later = None if sizes is None or joined or not torch.accelerator.is_available() else lambda: begin("cpu")
    with _own_devices(me, told, later) as (redirected, membership):
        made = None
        if sizes is not None and later is not None:
            follower.start(Grid.of(sizes).axes)
        elif sizes is not None:
            if not redirected:
                torch.accelerator.set_device_index(me.local_rank % torch.accelerator.device_count())
            made = begin("cpu" if redirected else str(torch.accelerator.current_accelerator()))
            membership.joined = joined
        try:
            yield made
        finally:
            set_current_entry(None)


@contextlib.contextmanager
def _own_devices(
    me: LaunchedRank, on_mesh: Callable[[DeviceMesh], None], on_joining: Callable[[], object] | None
) -> Iterator[tuple[bool, Membership]]:
    """The devices that are there inside the block: whether they are redirected to the CPU, and whether the script has
    joined the job.

    ``on_mesh``     is given each device mesh that the script makes, and no part of one.
    ``on_joining``  is called when the script has made the default group.
    """
    redirected = not torch.accelerator.is_available()
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(patched(sys, "excepthook", sys.excepthook))  # torch replaces it when a group is made
        membership = Membership(joined=False)
        once = _once(dist.init_process_group, dist.is_initialized, on_joining)
        stack.enter_context(patched(dist, "is_initialized", membership.is_initialized(dist.is_initialized)))
        init = membership.joining(_on_cpu(once) if redirected else once)
        for module in (dist, dist.distributed_c10d, device_mesh):
            stack.enter_context(patched(module, "init_process_group", init))
        for owner in (dist, device_mesh):
            stack.enter_context(patched(owner, "init_device_mesh", membership.joining(owner.init_device_mesh)))
        kind = device_mesh.DeviceMesh
        stack.enter_context(patched(kind, "__init__", _telling(kind.__init__, on_mesh)))
        if redirected:
            stack.enter_context(default_backend_everywhere())
            stack.enter_context(accelerator_redirected(Target(), me.local_rank, local_size))
        yield redirected, membership


def _once(
    plain: Callable[..., None], is_there: Callable[[], bool], on_joining: Callable[[], object] | None
) -> Callable[..., None]:
    """``init_process_group`` where the default group may be there already; ``on_joining`` is called when it is not."""

    @functools.wraps(plain)
    def init(*args: object, **options: object) -> None:
        if not is_there():
            plain(*args, **options)
            if on_joining is not None:
                on_joining()

    return init


def _on_cpu(plain: Callable[..., None]) -> Callable[..., None]:
    """``init_process_group`` with the one back end that a machine without accelerators has."""

    @functools.wraps(plain)
    def init(backend: object = None, *args: object, **options: object) -> None:
        plain(
            "gloo", *args, **{name: given for name, given in options.items() if name not in ("device_id", "pg_options")}
        )

    return init


def _telling(original: Callable[..., None], on_mesh: Callable[[DeviceMesh], None]) -> Callable[..., None]:
    """``DeviceMesh.__init__`` that says when the script has made a mesh, and no part of one."""

    @functools.wraps(original)
    def init(self: DeviceMesh, *args: object, **options: object) -> None:
        original(self, *args, **options)
        if not is_part_of_mesh(options):
            on_mesh(self)

    return init
