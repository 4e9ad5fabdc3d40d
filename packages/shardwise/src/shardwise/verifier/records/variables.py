"""What does the program call a tensor that no module has? The variables of its running functions, and what is in them.

    params = {"up": torch.randn(4, 8)}      params['up']
    model.layers[0].w, of a class of its own model.layers[0].w

The outermost function comes first: there a tensor has the name that it keeps while the functions inside come and go.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace

import torch

from shardwise.diagnostics.source import is_internal, user_frame

DEEPEST = 5
"""So many containers are looked into, each in the one before it."""
MOST = 20_000
"""So many values of one function are looked at."""
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep


def program_frames() -> list[FrameType]:
    """The functions of the program that are running, outermost first.

    None where no function of the program runs: what is found then has called us (a test runner, with all that it has).
    """
    found: list[FrameType] = []
    frame = user_frame()
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):  # we have called the program
        if not is_internal(frame.f_code):
            found.append(frame)
        frame = frame.f_back
    return found[::-1] if frame is not None else []


def tensors_held(frame: FrameType) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that the variables of ``frame`` hold, with the expression that leads there; shallow ones first."""
    passing = _loop_variables(frame.f_code)
    level = [(name, value) for name, value in list(frame.f_locals.items()) if name not in passing]
    seen: set[int] = set()
    for _ in range(DEEPEST):
        inner: list[tuple[str, object]] = []
        for path, value in level:
            if isinstance(value, torch.Tensor):
                yield path, value
            elif id(value) not in seen and len(seen) < MOST:
                seen.add(id(value))
                inner += [(path + step, one) for step, one in itertools.islice(_parts(value), MOST)]
        level = inner


@functools.cache
def _loop_variables(code: CodeType) -> frozenset[str]:
    """The variables of the loops of ``code``: now one of many is called so, now another."""
    found: set[str] = set()
    looping = False
    for one in dis.get_instructions(code):
        looping = one.opname == "FOR_ITER" or (looping and one.opname.startswith(("STORE_", "UNPACK_", "CACHE")))
        if looping and one.opname.startswith("STORE_"):
            found |= set(one.argval if isinstance(one.argval, tuple) else (one.argval,))
    return frozenset(found)


def fields_of(value: object) -> Iterable[tuple[str, object]]:
    """What is in a tuple, a list, a dict or a dataclass, with how it is got out."""
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names:
        return [(f".{name}", getattr(value, name)) for name in names]
    if isinstance(value, (tuple, list)):
        return ((f"[{at}]", one) for at, one in enumerate(value))
    if isinstance(value, dict):
        return ((f"[{key!r}]", one) for key, one in value.items() if isinstance(key, (str, int, tuple)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return []


def _parts(value: object) -> Iterable[tuple[str, object]]:
    """What is in a container, or an object of a class of the program, with how it is got out."""
    if isinstance(value, (tuple, list, dict)) or not _is_of_program(value):
        return fields_of(value)
    return [(f".{name}", one) for name, one in getattr(value, "__dict__", {}).items()] or fields_of(value)


def _is_of_program(value: object) -> bool:
    """Is it an object whose class the program has written, or a plain holder of names?"""
    if isinstance(value, (type, ModuleType, FunctionType, torch.nn.Module)):
        return False
    if isinstance(value, SimpleNamespace):
        return True
    home = type(value).__module__.partition(".")[0]
    return home not in sys.stdlib_module_names and home not in ("torch", "numpy", "shardwise")
