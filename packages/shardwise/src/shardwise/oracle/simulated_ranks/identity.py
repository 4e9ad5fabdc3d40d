"""Whoever asks for its rank is told which one is being simulated: functions of torch, and numbers kept from before.

A program that has asked once keeps the answer, in a global or a closure: such numbers can be changed.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh

from shardwise.mesh.axis import MeshAxis

from .replay import Replay, axis_of

_OTHERS = ("torch", "builtins", "shardwise", "enum", "typing", "types", "abc", "collections", "numpy")
_OURS = ("shardwise.collectives", "shardwise.train")
"""Modules of typed collectives."""
_DEPTH = 4
"""How far calls are followed from forward and backward."""


@contextlib.contextmanager
def told(replay: Replay[Any], functions: Sequence[types.FunctionType]) -> Iterator[set[MeshAxis]]:
    """Inside, the simulated rank is told to whoever asks; gives the axes of the groups in which somebody has asked."""
    asked: set[MeshAxis] = set()

    def get_rank(group: object = None) -> int:
        asked.add(axis_of(group))
        if (group is None or group is dist.group.WORLD) and not replay.alone:
            return replay.rank
        return replay.ranks_of(group).index(replay.rank)

    def get_world_size(group: object = None) -> int:
        return len(replay.ranks_of(group))

    def local_rank(self: DeviceMesh, mesh_dim: int | str | None = None) -> int:
        return get_rank(self.get_group(mesh_dim))

    def coordinate(self: DeviceMesh) -> list[int]:
        return [get_rank(self.get_group(dim)) for dim in range(self.ndim)]

    def barrier(*args: object, **kwargs: object) -> None: ...

    c10d: Any = dist.distributed_c10d
    group_rank, group_size = dist.ProcessGroup.rank, dist.ProcessGroup.size

    def rank_in_group(self: object) -> int:
        return get_rank(self)

    def size_of_group(self: object) -> int:
        return get_world_size(self)

    places: list[tuple[Any, str, object]] = [
        *((module, "get_rank", get_rank) for module in (dist, c10d, device_mesh)),
        *((module, "get_world_size", get_world_size) for module in (dist, c10d)),
        *((module, "barrier", barrier) for module in (dist, c10d)),
        (dist.ProcessGroup, "rank", functools.wraps(group_rank)(rank_in_group)),
        (dist.ProcessGroup, "size", functools.wraps(group_size)(size_of_group)),
        (DeviceMesh, "get_local_rank", local_rank),
        (DeviceMesh, "get_coordinate", coordinate),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in places]
    simulated = {dist.get_rank: get_rank, dist.get_world_size: get_world_size}
    names = [
        (space, name, value)
        for space in {id(one.__globals__): one.__globals__ for one in functions}.values()
        for name, value in list(space.items())
        if isinstance(value, types.FunctionType) and value in simulated
    ]
    environment = os.environ.get("RANK")
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        for space, name, value in names:
            space[name] = simulated[value]
        yield asked
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        for space, name, value in names:
            space[name] = value
        if environment is not None:
            os.environ["RANK"] = environment


@dataclass(frozen=True, eq=False)
class KeptNumber:
    """A number that the function can see: what it is called, its value, and how to change it."""

    name: str
    value: int
    put: Callable[[int], None]


def kept_numbers(functions: Sequence[types.FunctionType]) -> list[KeptNumber]:
    """The whole numbers in closures and globals that ``functions`` read."""
    found = []
    for function in functions:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = _content(cell)
            if isinstance(value, int) and not isinstance(value, bool):
                found.append(KeptNumber(name, value, functools.partial(setattr, cell, "cell_contents")))
        for name in sorted(names_read(function.__code__)):
            value = function.__globals__.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                found.append(KeptNumber(name, value, functools.partial(function.__globals__.__setitem__, name)))
    return found


def names_read(code: types.CodeType) -> set[str]:
    """The global names and attributes that ``code``, and the functions inside of it, mention."""
    inner = [names_read(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def names_called(function: types.FunctionType) -> set[str]:
    """``names_read``, and what torch itself calls the collectives, groups and modules that have another name there."""
    read = names_read(function.__code__)
    values = (function.__globals__.get(name) for name in read)
    held = (_content(cell) for cell in function.__closure__ or ())
    return read | names_of_distributed((*values, *held))


def names_of_distributed(things: Iterable[object]) -> set[str]:
    """What torch calls those of ``things`` that are its modules for what is distributed, or come from one."""
    return {_own_name(one) for one in things if _is_distributed(one)}


def _is_distributed(thing: object) -> bool:
    where = str(thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", ""))
    return where.startswith("torch.") and "distributed" in where


def _own_name(thing: object) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


def functions_behind(cls: type, objects: Sequence[object] = ()) -> list[types.FunctionType]:
    """The Python functions that forward and backward of ``cls`` are made of, those that they call included.

    Followed by name through globals, closures, attributes of modules and of the class, and methods of the ``objects``
    that it is given; torch's own are left out.
    """
    todo: list[tuple[object, int]] = []
    for name in ("forward", "backward", "vjp", "setup_context"):
        todo.append((getattr(cls, name, None), 0))
    for thing in objects:
        todo.extend((method, 1) for method in _methods(thing))
    found: dict[int, types.FunctionType] = {}
    while todo:
        thing, depth = todo.pop()
        function = _plain_function(thing)
        if function is None or id(function) in found or (function.__module__ or "").split(".")[0] in _OTHERS[:3]:
            continue
        found[id(function)] = function
        if depth < _DEPTH:
            todo.extend((one, depth + 1) for one in _mentioned(function, cls))
    return list(found.values())


def calls_ours(cls: type, functions: Sequence[types.FunctionType]) -> bool:
    """True if one of ``functions``, those behind ``cls``, mentions a typed collective, which no replay sees."""
    mentioned = (thing for function in functions for thing in _mentioned(function, cls))
    return any(str(getattr(thing, "__module__", "")).startswith(_OURS) for thing in mentioned)


def keeps_state(codes: Sequence[types.CodeType], functions: Sequence[types.FunctionType]) -> bool:
    """True if calling the function leaves something behind: it holds a module, whose hooks and counters it may change,
    or it writes attributes of what outlives the call (``ctx.module.count = n``).

    ``codes``  of forward and backward; ``functions`` also those that they call.
    """
    held = (_content(cell) for function in functions for cell in function.__closure__ or ())
    return any(isinstance(value, torch.nn.Module) for value in held) or any(map(_writes_outside, codes))


def _writes_outside(code: types.CodeType) -> bool:
    before = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "STORE_ATTR" and before in ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"):
            return True
        before = instruction.opname
    return False


def _methods(thing: object) -> list[object]:
    """The methods of an object of the program's own classes."""
    own = [cls for cls in type(thing).__mro__ if cls.__module__.split(".")[0] not in _OTHERS]
    return [method for cls in own for method in vars(cls).values() if isinstance(method, types.FunctionType)]


def code_of(cls: type, name: str) -> types.CodeType | None:
    """The code of a method of ``cls``, whatever it is decorated with; None for torch's own."""
    function = _plain_function(getattr(cls, name, None))
    return None if function is None or (function.__module__ or "").startswith("torch.") else function.__code__


def _mentioned(function: types.FunctionType, cls: type) -> Iterator[object]:
    names = names_read(function.__code__)
    for cell in function.__closure__ or ():
        value = _content(cell)
        yield value
        yield from (method for method in _methods(value) if getattr(method, "__name__", "") in names)
    spaces: list[Any] = [function.__globals__, vars(cls)]
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType) and value.__name__.startswith("shardwise"):
            yield from (getattr(value, one, None) for one in names)  # loaded on first use
        elif (isinstance(value, types.ModuleType) and not value.__name__.startswith("torch")) or isinstance(
            value, type
        ):
            spaces.append(vars(value))
        else:
            yield from (method for method in _methods(value) if getattr(method, "__name__", "") in names)
    for space in spaces:
        yield from (space[name] for name in names if name in space)


def _plain_function(thing: object) -> types.FunctionType | None:
    """The innermost Python function of decorators and bound methods; None for anything else."""
    while True:
        if isinstance(thing, (staticmethod, classmethod, types.MethodType)):
            thing = thing.__func__
        elif isinstance(thing, functools.partial):
            thing = thing.func
        elif isinstance(thing, types.FunctionType):
            inner = getattr(thing, "__wrapped__", None)
            if inner is None:
                return thing
            thing = inner
        else:
            return None


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not filled yet
