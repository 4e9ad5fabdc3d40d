"""What is a parameter called? Its path in the program's modules, looked up when a finding is about to be told."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from shardwise.diagnostics.source import user_frame

_SHOWN = 3


def names_of(parameters: Sequence[torch.Tensor], places: Mapping[int, int] = MappingProxyType({})) -> list[str]:
    """The paths of ``parameters``, such as ``layers.0.weight``; for one that no module has, the variable it is in.

    One that has neither is told by its place, by id in ``places``, and its shape. Looks through everything that is
    alive, so it is for findings only.
    """
    wanted = {id(parameter): position for position, parameter in enumerate(parameters)}
    names: dict[int, str] = {}
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    for root in modules:
        if id(root) not in inner:
            for name, parameter in root.named_parameters(remove_duplicate=True):
                position = wanted.get(id(parameter))
                if position is not None:
                    names.setdefault(position, name.removeprefix("module."))  # DDP calls what it wraps ``module``
    frame = user_frame()
    for name, value in () if frame is None else [*frame.f_globals.items(), *frame.f_locals.items()]:
        if id(value) in wanted:
            names.setdefault(wanted[id(value)], name)
    return [
        names.get(position, f"{_placed(places.get(id(parameter)))} of shape {list(parameter.shape)}")
        for position, parameter in enumerate(parameters)
    ]


def name_of(parameter: torch.Tensor) -> str:
    """The name of one parameter, as ``names_of`` has it."""
    return names_of([parameter])[0]


def gradient_name(parameter: torch.Tensor) -> str:
    """The gradient of a parameter as a program writes it."""
    return f"{name_of(parameter)}.grad"


def _placed(place: int | None) -> str:
    return "a parameter" if place is None else f"parameter {place}"


def listed(names: Sequence[str]) -> str:
    """A few names and how many there are: ``a, b, c and 4 more``."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
