"""How a room's door works: public names are listed with the module that defines them and loaded on first use.

A door may list names from rooms further right (``shardwise.rules`` lists the hook functions that live in the checker),
because nothing is imported until somebody asks. Only ``__init__`` modules and the flat compatibility modules
(``runtime``, ``rulecheck``) may be doors; ``tests/test_imports.py`` holds them to that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def door(module: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` for ``module``; ``names`` maps a name to its defining module."""

    def __getattr__(name: str) -> Any:
        home = names.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[module]), *names})

    return __getattr__, __dir__, sorted(names)


def listed(home: str, names: str) -> dict[str, str]:
    """The table entries for several names that live in one module."""
    return dict.fromkeys(names.split(), home)
