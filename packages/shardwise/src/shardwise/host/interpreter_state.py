"""What a program does to the interpreter that it shares with us: put back, so that its report can be made.

A script may replace builtins, streams and hooks, and empty ``sys.modules``: it is alone in its process, as it believes.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator

_OF_SYS = (
    "stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "excepthook", "unraisablehook", "displayhook",
    "breakpointhook", "modules", "argv",
)  # fmt: skip
_LISTS = ("meta_path", "path_hooks", "path")
"""Lists of ``sys`` that Python itself keeps hold of, so that their contents count."""
DEEPEST = 200_000
"""No program that ends calls itself as often; one that allows itself more takes all memory before it is told."""


@contextlib.contextmanager
def interpreter_kept() -> Iterator[None]:
    """Builtins, streams, hooks and modules after the block are those of before it; modules it has imported stay."""
    own = dict(vars(builtins))
    of_sys = {name: getattr(sys, name) for name in _OF_SYS}
    lists = {name: (getattr(sys, name), list(getattr(sys, name))) for name in _LISTS}
    modules = dict(sys.modules)
    filters, shows = list(warnings.filters), warnings.showwarning
    thread_hook, recursion, tracer, profiler = (
        threading.excepthook,
        sys.getrecursionlimit(),
        sys.gettrace(),
        sys.getprofile(),
    )
    allow = sys.setrecursionlimit
    sys.setrecursionlimit = lambda limit, /: allow(min(limit, DEEPEST))
    try:
        yield
    finally:
        # In this order: what comes later is made with what comes first, and nothing may be called before it.
        vars(builtins).update(own)
        for name, value in of_sys.items():
            setattr(sys, name, value)
        for name, (value, items) in lists.items():
            value[:] = items
            setattr(sys, name, value)
        for name, module in modules.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
        sys.settrace(tracer)
        _profile_again(profiler)
        sys.setrecursionlimit = allow
        allow(recursion)
        warnings.filters[:] = filters  # type: ignore[index]  # a list, which the stubs call a sequence
        warnings.showwarning = shows
        threading.excepthook = thread_hook


def _profile_again(profiler: object) -> None:
    """``cProfile`` is no function, so it cannot be set again: it is begun again where the program has ended it."""
    if sys.getprofile() is not profiler:
        enable = getattr(profiler, "enable", None)
        sys.setprofile(None if enable is not None else profiler)  # type: ignore[arg-type]
        if enable is not None:
            enable()


@contextlib.contextmanager
def folder_kept() -> Iterator[None]:
    """Wherever the program goes: the report names files as seen from where the command was given.

    A folder that the program has removed with everything in it is followed by the nearest above it that is there.
    """
    before = os.getcwd()
    try:
        yield
    finally:
        while True:
            try:
                os.chdir(before)
                break
            except OSError:
                if before == (before := os.path.dirname(before)):
                    break
