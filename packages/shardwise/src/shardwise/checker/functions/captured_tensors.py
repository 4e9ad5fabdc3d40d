"""Tensors that an autograd function reads besides its arguments: from closures, globals and its class."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from shardwise.interop.tensors.tagging import tag_of
from shardwise.oracle.simulated_ranks.identity import functions_behind, names_read

Place = tuple[str, Callable[[], object]]
"""What the tensor is called there, and how to get at it."""
_places: weakref.WeakKeyDictionary[type, list[Place]] = weakref.WeakKeyDictionary()


def captured_tensors(cls: type) -> list[tuple[str, torch.Tensor]]:
    """The typed ones, with their names: they are operands like the arguments."""
    places = _places.get(cls)
    if places is None:
        places = _places[cls] = _found(cls)
    found = [(name, get()) for name, get in places]
    return [(name, x) for name, x in found if isinstance(x, torch.Tensor) and tag_of(x) is not None]


def _found(cls: type) -> list[Place]:
    places: dict[str, Callable[[], object]] = {}
    for function in functions_behind(cls):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            places.setdefault(name, functools.partial(_content, cell))
        for name in names_read(function.__code__):
            places.setdefault(name, functools.partial(function.__globals__.get, name))
            if name in vars(cls):
                places[f"{cls.__name__}.{name}"] = functools.partial(vars(cls).get, name)
    return [(name, get) for name, get in places.items() if isinstance(get(), torch.Tensor)]


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not filled yet
