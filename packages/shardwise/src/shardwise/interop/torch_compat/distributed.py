"""Process groups: the tables of them, what is issued on them, and a table for each thread."""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from .registry import constant, declare, patch_point, private

Work: Any = constant(
    "torch._C._distributed_c10d.Work",
    purpose="what ``register_work`` of a functional collective keeps until its tensor is read; our own groups give it",
    lost="ranks that share a process",
)
declare(
    "torch.distributed.ProcessGroup._get_backend",
    purpose="what ``batch_isend_irecv`` asks of every group since torch 2.14; our own groups answer it",
    lost="batches of messages between ranks that share a process",
)
SOURCE_RANK = patch_point(
    "torch._C._distributed_c10d.Work._source_rank",
    purpose="what the handle of a receive from anybody answers; handles of the fake backend have no answer",
    lost="receives from anybody in a check of one rank",
)
COALESCING_MANAGER = patch_point(
    "torch.distributed.distributed_c10d._coalescing_manager",
    purpose="gathers the collectives and messages of a block into one, and tells nobody which",
    lost="what is used before the calls that a coalescing manager gathered are waited for",
    tier=2,
)
REARRANGE_BEFORE = patch_point(
    "torch.distributed._functional_collectives._chunk_or_narrow_cat",
    purpose="rearranges the operand of a functional collective that scatters another dim than the first",
    lost="functional collectives along another dim than the first",
    tier=2,
)
REARRANGE_AFTER = patch_point(
    "torch.distributed._functional_collectives._maybe_view_chunk_cat",
    purpose="rearranges the result of a functional collective that gathers another dim than the first",
    lost="functional collectives along another dim than the first",
    tier=2,
)


@private(
    "torch.distributed._functional_collectives.AsyncCollectiveTensor",
    lost="collectives with async_op",
)
def async_tensor(pending: torch.Tensor) -> torch.Tensor:
    """A tensor whose collective is still running, waited for by the first op that reads it."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    made: torch.Tensor = AsyncCollectiveTensor(pending)
    return made


@private(
    "torch.distributed._local_tensor.enabled_local_tensor_mode",
    "torch.distributed._local_tensor.LocalTensorMode.rank_map",
    "torch.distributed._local_tensor.LocalTensorMode.tensor_map",
    "torch.distributed._local_tensor.LocalTensorMode:ranks",
    lost="ranks that LocalTensorMode simulates",
    tier=2,
)
def simulated_ranks() -> Any:
    """The mode in which this process stands for several ranks at once; None outside. It is not imported for this."""
    module = sys.modules.get("torch.distributed._local_tensor")
    return None if module is None else module.enabled_local_tensor_mode()


@private(
    "torch._C._distributed_c10d.ProcessGroup.unbox",
    lost="the comparison of ranks",
)
def unboxed_group(boxed: Any) -> object:
    """The process group that an operator of ``torch.ops.c10d`` is given."""
    return torch._C._distributed_c10d.ProcessGroup.unbox(boxed)


@private(
    "torch._C._distributed_c10d.Work.unbox",
    lost="the comparison of ranks",
)
def unboxed_work(boxed: Any) -> object:
    """The handle that an operator of ``torch.ops.c10d`` returns; the very object that the caller will get."""
    return torch._C._distributed_c10d.Work.unbox(boxed)


@private(
    "torch._C._distributed_c10d.FakeWork",
    lost="checking one rank of a job on one machine",
)
def fake_work() -> Any:
    """The class of the handles that collectives of the fake backend return."""
    return torch._C._distributed_c10d.FakeWork


@private(
    "torch.distributed.distributed_c10d._world",
    lost="the comparison of ranks",
)
def groups_in_order() -> list[ProcessGroup]:
    """The process groups that this process is a member of, in the order in which they were made."""
    c10d: Any = torch.distributed.distributed_c10d
    return list(c10d._world.pg_names)


@private(
    "torch.distributed.distributed_c10d._new_group_with_tag",
    lost="the comparison of ranks",
)
@contextlib.contextmanager
def groups_watched(made: Callable[[tuple[int, ...]], None]) -> Iterator[None]:
    """``made(ranks)`` is called before each group that all ranks have to make together, by whatever function.

    Groups that only their members make (``use_local_synchronization``) are passed over.
    """
    c10d: Any = torch.distributed.distributed_c10d
    original = c10d._new_group_with_tag

    def watched(ranks: Any = None, *args: object, **options: object) -> object:
        if not options.get("use_local_synchronization"):
            made(tuple(range(torch.distributed.get_world_size()) if ranks is None else sorted(ranks)))
        return original(ranks, *args, **options)

    c10d._new_group_with_tag = watched
    try:
        yield
    finally:
        c10d._new_group_with_tag = original


def default_group_exists() -> bool:
    """True once ``init_process_group`` has been called in this process."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@private(
    "torch.distributed.distributed_c10d._new_group_with_tag",
    lost="programs that ask for NCCL where there is none",
)
@contextlib.contextmanager
def default_backend_everywhere() -> Iterator[None]:
    """Every group made inside the block, whatever backend it asks for, has that of the default group.

    ``new_group``, ``new_subgroups`` and device meshes all make their groups through this one private function.
    """
    c10d: Any = torch.distributed.distributed_c10d
    original = c10d._new_group_with_tag

    def without_backend(
        ranks: object = None,
        timeout: object = None,
        backend: object = None,
        options: object = None,
        *rest: object,
        **more: object,
    ) -> object:
        for own in ("backend_options", "device_id"):
            more.pop(own, None)
        return original(ranks, timeout, None, None, *rest, **more)

    c10d._new_group_with_tag = without_backend
    try:
        yield
    finally:
        c10d._new_group_with_tag = original


@private(
    "torch.distributed.device_mesh._mesh_resources",
    lost="several checks in one process",
)
def forget_groups() -> None:
    """Destroy every process group and forget the meshes built on them."""
    if default_group_exists():
        torch.distributed.destroy_process_group()
    stack = getattr(torch.distributed.device_mesh, "_mesh_resources", None)
    if stack is not None:
        stack.mesh_stack.clear()


@private(
    "torch._C._distributed_c10d._resolve_process_group",
    lost="functional collectives",
)
def group_named(name: str) -> ProcessGroup:
    """The process group that the functional collectives know as ``name``."""
    return torch._C._distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type]


@private(
    "torch._C._distributed_c10d._dump_fr_trace",
    lost="where each rank hangs",
    tier=2,
)
def flight_records() -> list[dict[str, Any]]:
    """The last collectives that this process has entered, oldest first, as torch's flight recorder has them.

    The keys read: ``profiling_name``, ``process_group`` (name, description), ``collective_seq_id``, ``is_p2p``,
    ``retired`` (it is over), ``input_sizes``, ``input_dtypes``. Messages of gloo are not recorded. Empty if the
    environment sets ``TORCH_FR_BUFFER_SIZE=0``. No public name asks a process about itself.
    """
    internals: Any = torch._C._distributed_c10d
    dump = pickle.loads(internals._dump_fr_trace(True, False, False))
    entries: list[dict[str, Any]] = dump.get("entries", [])
    return entries


@private(
    "torch.distributed.distributed_c10d._world",
    lost="where each rank hangs",
    tier=2,
)
def ranks_by_group_name() -> dict[str, tuple[int, ...]]:
    """The global ranks of every process group of this process, in group order, by the group's name."""
    world = torch.distributed.distributed_c10d._world
    return {str(name): tuple(world.pg_group_ranks[group]) for group, name in world.pg_names.items()}


class _WorldPerThread:
    """Stands in for c10d's table of process groups: a thread that has joined a job has a table of its own."""

    def __init__(self, shared: object) -> None:
        object.__setattr__(self, "_shared", shared)
        object.__setattr__(self, "_own", threading.local())

    def _table(self) -> object:
        return getattr(self._own, "table", self._shared)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._table(), name, value)


def _empty_group_table(like: object) -> object:
    """A table with the maps of ``like``, all empty: torch 2.15 has one more than 2.13."""
    names = [name for name in dir(like) if not name.startswith("_") and name != "pg_config_info"]  # made of the others
    maps: dict[str, Any] = {name: {} for name in names if isinstance(getattr(like, name), dict)}
    return types.SimpleNamespace(default_pg=None, group_count=0, comms=[], **maps)


@private(
    "torch.distributed.distributed_c10d._world",
    "torch.distributed.distributed_c10d._process_group_name",
    "torch.distributed.distributed_c10d._register_pg_in_world",
    "torch._C._distributed_c10d._set_thread_isolation_mode",
    "torch._C._distributed_c10d.Logger.set_construction_data_and_log",
    lost="ranks that share a process",
    tier=2,
)
@contextlib.contextmanager
def groups_per_thread() -> Iterator[Callable[[Callable[[str], object], str, object], None]]:
    """Inside, every thread that joins has process groups of its own, as if it were a process.

    Gives the function to join with: it takes what makes the default group out of its name, the backend that the groups
    claim to have, and a store. C++ finds groups by name per thread too. Device meshes, which compare equal across
    ranks, must not across threads: they ask for the backend's name to know. DDP's log asks gloo for its sockets, which
    are not there, so it is not written.
    """
    c10d: Any = torch.distributed.distributed_c10d
    meshes: Any = torch.distributed.device_mesh
    internals: Any = torch._C._distributed_c10d
    logger: Any = torch._C._distributed_c10d.Logger
    shared, asked, logged = c10d._world, meshes.get_backend, logger.set_construction_data_and_log
    table = _WorldPerThread(shared)

    def join(make: Callable[[str], Any], backend: str, store: object) -> None:
        table._own.table = _empty_group_table(shared)
        name = c10d._process_group_name([], use_hashed_name=False)
        group = make(name)
        config = str(c10d.BackendConfig(c10d.Backend(backend)))
        members = {rank: rank for rank in range(group.size())}
        c10d._register_pg_in_world(group, backend, store, name, config, members, add_to_default_tag=True)
        table.default_pg = group

    def get_backend(group: object = None) -> str:
        return "threaded" if hasattr(table._own, "table") else asked(group)

    internals._set_thread_isolation_mode(True)
    c10d._world, meshes.get_backend = table, get_backend
    logger.set_construction_data_and_log = lambda *facts: None
    try:
        yield join
    finally:
        c10d._world, meshes.get_backend = shared, asked
        logger.set_construction_data_and_log = logged
        internals._set_thread_isolation_mode(False)
