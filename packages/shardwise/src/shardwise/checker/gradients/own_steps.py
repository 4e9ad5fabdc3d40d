"""Does an optimizer that the program has written sum gradients in its own step? Then that is judged as all its code is.

A step with collectives of its own (PowerSGD, states shared out over ranks, sign votes) is called with each rank's
addends and makes their sum itself, so at its door nothing is missing. What it does with a pending sum that it has not
made is refused at the operator, as in any function.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

import torch

from shardwise.diagnostics.source import is_internal
from shardwise.op_rules.raw_collectives import RAW

_DEEP = 4
"""Functions of functions that are looked into."""


def communicates(optimizer: torch.optim.Optimizer) -> bool:
    """True if its ``step``, or a function of the program that this calls by name, calls a collective."""
    cls = type(optimizer)
    if cls not in _known:
        _known[cls] = _speaks_of_collectives(cls)
    return _known[cls]


_known: dict[type, bool] = {}


def _speaks_of_collectives(cls: type) -> bool:
    todo, seen = [_function(getattr(cls, "step", None))], set()
    for _ in range(_DEEP):
        found: list[FunctionType | None] = []
        for function in todo:
            if function is None or function.__code__ in seen or is_internal(function.__code__):
                continue
            seen.add(function.__code__)
            names = set(_names(function.__code__))
            if names & RAW.keys():
                return True
            found += [_function(getattr(cls, name, None) or function.__globals__.get(name)) for name in names]
        todo = found
    return False


def _function(found: object) -> FunctionType | None:
    """The function of the program itself, without decorators, as torch puts one around ``step``."""
    plain = inspect.unwrap(found) if callable(found) else None
    return plain if isinstance(plain, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
