"""Which private torch names do we use? Every one of them is here, with the versions it is known to work on.

Each entry: what it is for, and why no public name will do. Only torch 2.13 is tested, though the package admits others.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed
import torch.utils._python_dispatch

from .storage import storage_of

Function = TypeVar("Function", bound=Callable[..., Any])

# Functional collectives: what torch.compile can trace, and what returns tensors that wait at their first use. The
# public wrappers branch on the group's form and warn; the ops take the group's name. (2.13)
functional_collectives: Any = torch.ops._c10d_functional


def async_tensor(pending: torch.Tensor) -> torch.Tensor:
    """A tensor whose collective is still running, waited for by the first op that reads it. (2.13)"""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    made: torch.Tensor = AsyncCollectiveTensor(pending)
    return made


@contextlib.contextmanager
def fake_world(rank: int, world_size: int) -> Iterator[None]:
    """A default process group whose collectives return at once without moving a byte. (2.13)"""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


# The classes of ``torch.ops.<namespace>.<name>`` and its overloads, to tell them from other callables. (2.13)
OpOverload: Any = torch._ops.OpOverload
OpOverloadPacket: Any = torch._ops.OpOverloadPacket
HigherOrderOperator: Any = torch._ops.HigherOrderOperator


def operator_parameters(func: Any) -> tuple[str, ...]:
    """The parameters of an operator of ``torch.ops``, by its schema; empty for any other callable. (torch 2.13)"""
    if isinstance(func, OpOverloadPacket):
        func = getattr(func, func.overloads()[0])
    schema = getattr(func, "_schema", None)
    return () if schema is None else tuple(argument.name for argument in schema.arguments)


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator below autograd, those of ``c10d`` that C++ issues too; torch documents it. (2.13)"""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # keeping Dynamo out would load it, which takes longer than most checks


def unboxed_group(boxed: Any) -> Any:
    """The process group that an operator of ``torch.ops.c10d`` is given. (2.13)"""
    return torch._C._distributed_c10d.ProcessGroup.unbox(boxed)


def unboxed_work(boxed: Any) -> Any:
    """The handle that an operator of ``torch.ops.c10d`` returns; the very object that the caller will get. (2.13)"""
    return torch._C._distributed_c10d.Work.unbox(boxed)


def fake_work() -> Any:
    """The class of the handles that collectives of the fake backend return. (2.13)"""
    return torch._C._distributed_c10d.FakeWork


def groups_in_order() -> list[Any]:
    """The process groups that this process is a member of, in the order in which they were made. (2.13)"""
    c10d: Any = torch.distributed.distributed_c10d
    return list(c10d._world.pg_names)


@contextlib.contextmanager
def groups_watched(made: Callable[[tuple[int, ...]], None]) -> Iterator[None]:
    """``made(ranks)`` is called before each group that all ranks have to make together, by whatever function. (2.13)

    Groups that only their members make (``use_local_synchronization``) are passed over.
    """
    c10d: Any = torch.distributed.distributed_c10d
    original = c10d._new_group_with_tag

    def watched(ranks: Any = None, *args: Any, **options: Any) -> Any:
        if not options.get("use_local_synchronization"):
            made(tuple(range(torch.distributed.get_world_size()) if ranks is None else sorted(ranks)))
        return original(ranks, *args, **options)

    c10d._new_group_with_tag = watched
    try:
        yield
    finally:
        c10d._new_group_with_tag = original


def storage_key(tensor: torch.Tensor) -> int:
    """The same number for all tensors that share a storage, as long as one of them lives. (2.13)"""
    storage = storage_of(tensor)
    return id(tensor) if storage is None else int(storage._cdata)


def in_backward() -> bool:
    """True while autograd runs a backward pass on this thread. (2.13)"""
    return torch._C._current_graph_task_id() != -1


def default_group_exists() -> bool:
    """True once ``init_process_group`` has been called in this process. (2.13)"""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextlib.contextmanager
def default_backend_everywhere() -> Iterator[None]:
    """Every group made inside the block, whatever backend it asks for, has that of the default group. (2.13)

    ``new_group``, ``new_subgroups`` and device meshes all make their groups through this one private function.
    """
    c10d: Any = torch.distributed.distributed_c10d
    original = c10d._new_group_with_tag

    def without_backend(
        ranks: Any = None, timeout: Any = None, backend: Any = None, options: Any = None, *rest: Any, **more: Any
    ) -> Any:
        for own in ("backend_options", "device_id"):
            more.pop(own, None)
        return original(ranks, timeout, None, None, *rest, **more)

    c10d._new_group_with_tag = without_backend
    try:
        yield
    finally:
        c10d._new_group_with_tag = original


def forget_groups() -> None:
    """Destroy every process group and forget the meshes built on them. (2.13)"""
    if default_group_exists():
        torch.distributed.destroy_process_group()
    stack = getattr(torch.distributed.device_mesh, "_mesh_resources", None)
    if stack is not None:
        stack.mesh_stack.clear()


def mesh_of_one_rank(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``DeviceMesh`` with one rank along every axis, rank 0. Meshes are given by their ranks, or, by
    ``init_device_mesh``, by a layout. (2.13)"""
    layout, ranks = options.get("_layout"), args[1] if len(args) > 1 else options.get("mesh")
    if layout is not None and layout.numel() > 1:
        ones = layout.from_sizes_strides((1,) * len(layout))
        return args, {**options, "_layout": ones, "_rank_map": torch.zeros(1, dtype=torch.int, device="cpu")}
    if ranks is None:
        return args, options
    zero = torch.zeros((1,) * torch.as_tensor(ranks, device="cpu").ndim, dtype=torch.int, device="cpu")
    if len(args) > 1:
        return (args[0], zero, *args[2:]), options
    return args, {**options, "mesh": zero}


def factories() -> frozenset[Any]:
    """The functions that make a tensor out of nothing and take a ``device``; torch has no public list. (2.13)"""
    from torch.utils._device import _device_constructors

    return frozenset(_device_constructors())


def fake_tensor_mode() -> Any:
    """A mode in which tensors are made without storage; FakeTensor has no public name. (2.13)"""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def forget_fakes(mode: Any) -> None:
    """Drop the weak references that a fake tensor mode keeps: they keep ``nn.Module.to`` from swapping. (2.13)"""
    mode.fake_tensor_converter.meta_converter.tensor_memo.clear()


def is_fake(x: Any) -> bool:
    """True for a fake tensor; does not load the fake tensor machinery. (2.13)"""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(x, module.FakeTensor)


class _Shielded(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts a fake in the place of every real tensor: what has real operands alone, a fake mode may run for real."""

    def __init__(self, fake_mode: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake_mode = fake_mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.lift_fresh.default:  # a constant that has just been made may keep its value
            args, kwargs = tree_map(self._fake, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _fake(self, value: Any) -> Any:
        real = isinstance(value, torch.Tensor) and not is_fake(value)
        return self.fake_mode.from_tensor(value) if real else value


def outside_transforms() -> contextlib.AbstractContextManager[Any]:
    """Inside, no vmap and no derivative of ``torch.func`` is at work: plain tensors are plain tensors. (2.13)"""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    cleared: contextlib.AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return cleared


@contextlib.contextmanager
def without_data(fake_mode: Any) -> Iterator[None]:
    """Inside, operators run on shapes alone; real tensors are read as such and never written to. (2.13)"""
    keeps_casts = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # or a weight cast in here would be found again outside, without data
    try:
        with fake_mode, _Shielded(fake_mode):
            yield
    finally:
        torch.set_autocast_cache_enabled(keeps_casts)


def is_batched(x: Any) -> bool:
    """True if vmap computes with ``x``, at any depth of transforms: it has a value per element, and none of its own.
    (2.13)"""
    functorch = torch._C._functorch
    while isinstance(x, torch.Tensor) and functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def fake_mode_of(x: Any) -> Any:
    """The mode that a fake tensor was made in; fakes of two modes do not meet. (2.13)"""
    return x.fake_mode


def higher_order_module() -> Any:
    """Where ``cond``, ``while_loop``, ``scan`` and ``map`` compile what they run (``_hop_compile_and_call``). (2.13)"""
    from torch._higher_order_ops import utils

    return utils


def is_transformed(x: torch.Tensor) -> bool:
    """True for the stand-in that vmap or a derivative of ``torch.func`` computes with. (2.13)"""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


# What ``nn.Module.to`` makes of its arguments; a function mode sees it as this object. (2.13)
parse_to: Any = torch._C._nn._parse_to


# Inside ``with no_torch_function():`` attributes of tensors are read without asking modes and subclasses; the public
# ``DisableTorchFunctionSubclass`` lets modes in. (2.13)
no_torch_function = torch._C.DisableTorchFunction


# How many function modes would see the next call; ``function_modes`` lists them, at ten times the cost. (2.13)
count_function_modes = torch._C._len_torch_function_stack


def tree_leaves(value: Any) -> list[Any]:
    """The leaves of nested containers, those registered by users too; None is a leaf. (2.13)"""
    from torch.utils import _pytree

    return _pytree.tree_leaves(value)


def tree_map(function: Any, value: Any) -> Any:
    """``value`` with every leaf replaced by ``function(leaf)``. (2.13)"""
    from torch.utils import _pytree

    return _pytree.tree_map(function, value)


def tree_match(value: Any, other: Any) -> tuple[list[Any], list[Any]]:
    """The leaves of ``value``, and the parts of ``other`` that stand in their places. (2.13)

    Errors: ValueError if ``other`` is not built like ``value``.
    """
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten(value)
    return leaves, structure.flatten_up_to(other)


def tree_structure(value: Any) -> Any:
    """How ``value`` is nested; structures compare by value and print themselves. (2.13)"""
    from torch.utils import _pytree

    return _pytree.tree_structure(value)


def vmap_module() -> Any:
    """Where vmap runs (``_flat_vmap``), wraps its inputs (``_create_batched_inputs``) and unwraps its outputs.

    There is no public hook, and the wrapped tensors are new Python objects without attributes. (2.13)
    """
    from torch._functorch import vmap

    return vmap


def grad_transforms_module() -> Any:
    """Where ``torch.func.grad`` and ``vjp`` wrap their inputs, unwrap their outputs and run backward. (2.13)"""
    from torch._functorch import eager_transforms

    return eager_transforms


def constant_when_compiled(function: Function) -> Function:
    """What ``torch.compiler.assume_constant_result`` does, without importing all of Dynamo (and DTensor with it), which
    would take longer than most checks. (2.13)"""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def functional_collectives_module() -> Any:
    """Where the functional collectives are that take a tensor dim, and the helpers with which they rearrange around
    their kernels (``_chunk_or_narrow_cat``, ``_maybe_view_chunk_cat``). (2.13)"""
    from torch.distributed import _functional_collectives

    return _functional_collectives


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if the tensors share a storage, also where autograd does not call one a view (detach). (2.13)"""
    one, other = storage_of(a), storage_of(b)
    return one is not None and other is not None and bool(one._cdata == other._cdata)


def group_named(name: str) -> Any:
    """The process group that the functional collectives know as ``name``. (2.13)"""
    return torch._C._distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type]


def function_modes() -> list[Any]:
    """The function modes that would see the next call; while a mode handles one, it is not among them. (2.13)"""
    from torch.overrides import _get_current_function_mode_stack

    return _get_current_function_mode_stack()  # type: ignore[no-any-return, no-untyped-call]


def op_database() -> list[Any]:
    """PyTorch's own list of operators with sample inputs; needs the package ``expecttest``. (2.13)"""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def without_redistribution() -> contextlib.AbstractContextManager[Any]:
    """Inside, an operator on DTensors raises RuntimeError where it would change a placement of an operand. (2.13)"""
    from torch.distributed.tensor._utils import ExplicitRedistributionContext

    return ExplicitRedistributionContext(strict=True)


def without_torch_function() -> contextlib.AbstractContextManager[Any]:
    """Inside, neither function modes nor tensor subclasses see a call; the public one hides subclasses only. (2.13)"""
    return torch._C.DisableTorchFunction()


def flight_records() -> list[dict[str, Any]]:
    """The last collectives that this process has entered, oldest first, as torch's flight recorder has them.

    The keys read: ``profiling_name``, ``process_group`` (name, description), ``collective_seq_id``, ``is_p2p``,
    ``retired`` (it is over), ``input_sizes``, ``input_dtypes``. Messages of gloo are not recorded. Empty if the
    environment sets ``TORCH_FR_BUFFER_SIZE=0``. No public name asks a process about itself. (2.13)
    """
    internals: Any = torch._C._distributed_c10d
    dump = pickle.loads(internals._dump_fr_trace(True, False, False))
    entries: list[dict[str, Any]] = dump.get("entries", [])
    return entries


def ranks_by_group_name() -> dict[str, tuple[int, ...]]:
    """The global ranks of every process group of this process, in group order, by the group's name. (2.13)"""
    world = torch.distributed.distributed_c10d._world
    return {str(name): tuple(world.pg_group_ranks[group]) for group, name in world.pg_names.items()}


@contextlib.contextmanager
def no_modes() -> Iterator[None]:
    """Inside, neither function modes nor dispatch modes of this thread see what is done. (2.13)"""
    from torch.utils._python_dispatch import _disable_current_modes

    with no_torch_function(), _disable_current_modes():
        yield


class _WorldPerThread:
    """Stands in for c10d's table of process groups: a thread that has joined a job has a table of its own."""

    def __init__(self, shared: Any) -> None:
        object.__setattr__(self, "_shared", shared)
        object.__setattr__(self, "_own", threading.local())

    def _table(self) -> Any:
        return getattr(self._own, "table", self._shared)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._table(), name, value)


def _empty_group_table() -> Any:
    maps = ["pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "tags_to_pg", "pg_to_tag", "pg_coalesce_state"]
    return types.SimpleNamespace(default_pg=None, group_count=0, comms=[], **{name: {} for name in maps})


@contextlib.contextmanager
def groups_per_thread() -> Iterator[Callable[[Callable[[str], Any], str, Any], None]]:
    """Inside, every thread that joins has process groups of its own, as if it were a process.

    Gives the function to join with: it takes what makes the default group out of its name, the backend that the groups
    claim to have, and a store. C++ finds groups by name per thread too. Device meshes, which compare equal across
    ranks, must not across threads: they ask for the backend's name to know. DDP's log asks gloo for its sockets, which
    are not there, so it is not written. (2.13)
    """
    c10d: Any = torch.distributed.distributed_c10d
    meshes: Any = torch.distributed.device_mesh
    internals: Any = torch._C._distributed_c10d
    logger: Any = torch._C._distributed_c10d.Logger
    shared, asked, logged = c10d._world, meshes.get_backend, logger.set_construction_data_and_log
    table = _WorldPerThread(shared)

    def join(make: Callable[[str], Any], backend: str, store: Any) -> None:
        table._own.table = _empty_group_table()
        name = c10d._process_group_name([], use_hashed_name=False)
        group = make(name)
        config = str(c10d.BackendConfig(c10d.Backend(backend)))
        members = {rank: rank for rank in range(group.size())}
        c10d._register_pg_in_world(group, backend, store, name, config, members, add_to_default_tag=True)
        table.default_pg = group

    def get_backend(group: Any = None) -> str:
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


# What ``register_work`` of a functional collective keeps until its tensor is read, and what our own groups give. (2.13)
Work: Any = torch._C._distributed_c10d.Work


def preload() -> None:
    """Load what torch loads at its first optimizer step, so that processes forked from this one share it. (2.13)"""
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch.distributed.tensor")


def foreach_norm(tensors: list[torch.Tensor], power: float, dtype: torch.dtype) -> Sequence[torch.Tensor]:
    """The norm of each tensor, computed in ``dtype``, in few kernels; ``torch.nn.utils`` calls the same. (2.4)"""
    return torch._foreach_norm(tensors, power, dtype=dtype)


def foreach_scale_(tensors: list[torch.Tensor], factor: torch.Tensor) -> None:
    """Multiply all tensors in place by ``factor``, which has no dims, in few kernels. (2.1)"""
    torch._foreach_mul_(tensors, factor)


def keeping_version(tensor: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """In the block, changes of ``tensor`` in place are no changes to autograd, which may have saved it. (2.0)"""
    return torch.autograd._unsafe_preserve_version_counter(tensor)  # type: ignore[attr-defined]
