"""Which private torch names do we use? Every one of them is here, with the versions it is known to work on.

Each entry: what it is for, and why no public name will do. Only torch 2.13 is tested, though the package admits others.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed

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


def operator_parameters(func: Any) -> tuple[str, ...]:
    """The parameters of an operator of ``torch.ops``, by its schema; empty for any other callable. (torch 2.13)"""
    if isinstance(func, OpOverloadPacket):
        func = getattr(func, func.overloads()[0])
    schema = getattr(func, "_schema", None)
    return () if schema is None else tuple(argument.name for argument in schema.arguments)


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


def is_transformed(x: torch.Tensor) -> bool:
    """True for the stand-in that vmap or a derivative of ``torch.func`` computes with. (2.13)"""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


# What ``nn.Module.to`` makes of its arguments; a function mode sees it as this object. (2.13)
parse_to: Any = torch._C._nn._parse_to


# Inside ``with no_torch_function():`` attributes of tensors are read without asking modes and subclasses; the public
# ``DisableTorchFunctionSubclass`` lets modes in. (2.13)
no_torch_function = torch._C.DisableTorchFunction


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


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if the tensors share a storage, also where autograd does not call one a view (detach). (2.13)"""
    try:
        return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return False  # sparse and wrapper tensors have no storage


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
    dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
    entries: list[dict[str, Any]] = dump.get("entries", [])
    return entries


def ranks_by_group_name() -> dict[str, tuple[int, ...]]:
    """The global ranks of every process group of this process, in group order, by the group's name. (2.13)"""
    world = torch.distributed.distributed_c10d._world
    return {str(name): tuple(world.pg_group_ranks[group]) for group, name in world.pg_names.items()}
