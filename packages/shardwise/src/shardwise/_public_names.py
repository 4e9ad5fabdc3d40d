"""Lazy public names: a package's stub file says which names it has and where each is defined; first use loads them.

The stub (``__init__.pyi`` beside ``__init__.py``) is what editors and type checkers read, so there is one list:

    from .collectives.communicate import (        # in shardwise/__init__.pyi
        all_gather as all_gather,
    )
    shardwise.all_gather                          # imports shardwise.collectives.communicate, then keeps the name

A stub may list names from packages further right, because nothing is imported until somebody asks. Only ``__init__``
modules and the flat modules (``rules``, ``runtime``) may do so; ``tests/test_imports.py`` holds them to that.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path


def public_names(module: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` for ``module``, whose source is ``file`` with a stub beside it."""
    path = Path(file)
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    homes = homes_of(path.with_suffix(".pyi").read_text("utf-8"), package)

    def __getattr__(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return __getattr__, __dir__, sorted(homes)


def homes_of(stub: str, package: str) -> dict[str, str]:
    """Name to defining module, of every ``from module import name as name``; sub-packages are no names."""
    homes = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            home = f"{package}.{node.module}" if node.level else node.module
            homes.update(dict.fromkeys((alias.name for alias in node.names), home))
    return homes
