"""What code that is running can call a tensor, a process group, or the companions of an input: its variables.

``self.up.weight`` in ``Block.__init__``, ``model[0].weight`` in the function that has ``model``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.distributed as dist

from shardwise.interop.running.wrappers import FORWARDING

from .variables import fields_of


def group_candidates(frame: FrameType) -> Iterator[tuple[str, object]]:
    """Process groups that code in ``frame`` can name: global ones, those of modules and of ``self``, and the world."""
    scope = {**frame.f_globals, **frame.f_locals}
    for name, value in scope.items():
        if isinstance(value, ModuleType):
            if not value.__name__.startswith("torch"):
                yield from ((f"{name}.{inner}", one) for inner, one in vars(value).items() if _is_group(one))
        elif _is_group(value):
            yield name, value
    owner = scope.get("self")
    yield from ((f"self.{name}", one) for name, one in getattr(owner, "__dict__", {}).items() if _is_group(one))
    yield from ((f"{name}.group.WORLD", dist.group.WORLD) for name, value in scope.items() if value is dist)


def _is_group(value: object) -> bool:
    return issubclass(type(value), dist.ProcessGroup)


def expressions_for(frame: FrameType, parameter: torch.Tensor) -> Iterator[tuple[str, str, str, str]]:
    """The name in ``frame`` that leads to ``parameter``, if there is one, a module's before its wrapper's: the name,
    the whole expression, the same without the wrapper that the name is bound to, and the path in the module that it is.
    """
    ready: list[tuple[bool, str, str, str, str]] = []
    for name, value in frame.f_locals.items():
        if name.isidentifier() and not name.startswith("__"):
            ready += [(bool(way[1]), name, name + way[0], name + way[1], way[2]) for way in paths_to(value, parameter)]
            if name == "self" and not isinstance(value, torch.nn.Module):
                for attribute, held in getattr(value, "__dict__", {}).items():
                    ready += [(True, name, f"self.{attribute}{way[0]}", "", "") for way in paths_to(held, parameter)]
    for _, name, expression, unwrapped, path in sorted(ready, key=lambda one: one[0])[:1]:
        yield name, expression, unwrapped if unwrapped != name else "", path


def paths_to(value: object, parameter: torch.Tensor) -> Iterator[tuple[str, str, str]]:
    """How to get from ``value`` to ``parameter``; and from what ``value`` wraps, if it wraps a module; and the path."""
    if value is parameter:
        yield "", "", ""
    elif isinstance(value, torch.nn.Module):
        for path, own in (*value.named_parameters(), *value.named_buffers()):
            if own is parameter:
                # As DistributedDataParallel does, and wrappers of the program's own that are like it.
                wraps = path.startswith("module.")
                inner = _path(value.get_submodule("module"), path.split(".")[1:]) if wraps else ""
                yield _path(value, path.split(".")), inner, path
                return


def _path(module: torch.nn.Module, parts: Sequence[str]) -> str:
    """``.up.weight``, or ``[0].weight`` for a module whose children are numbered.

    What a wrapper answers for the module in it leads there before as well as after the module has been wrapped.
    """
    at: Any = module
    text = ""
    for part, following in itertools.zip_longest(parts, parts[1:], fillvalue=""):
        numbered = part.isdigit()
        if part in FORWARDING and (hasattr(type(at), "__getitem__") or not following.isdigit()):
            at = getattr(at, part, None)
            continue
        keyed = not part.isidentifier() or isinstance(at, (torch.nn.ModuleDict, torch.nn.ParameterDict))
        text += f"[{part}]" if numbered else f"[{part!r}]" if keyed else f".{part}"
        at = getattr(at, part, None)
    return text


Companions = tuple[tuple[str, torch.Tensor], ...]


def variables_holding(frame: FrameType, x: torch.Tensor) -> Iterator[tuple[str, str, Companions]]:
    """The variables of ``frame`` in which ``x`` is: name, expression, and the other tensors beside it."""
    for name, value in frame.f_locals.items():
        if value is x and name.isidentifier():
            yield name, name, ()
    for name, value in frame.f_locals.items():
        fields = list(fields_of(value))
        own = next((path for path, one in fields if one is x), None)
        if own is not None and name.isidentifier():
            others = [(name + path, one) for path, one in fields if one is not x and isinstance(one, torch.Tensor)]
            yield name, name + own, tuple(others)
