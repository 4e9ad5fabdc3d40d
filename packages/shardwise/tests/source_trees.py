"""The modules of the package, and what their sources are made of: each is parsed once for all rules that ask.

Tests that ask go to one worker: ``pytestmark = READ_TOGETHER``.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import shardwise

PACKAGE = Path(shardwise.__file__).parent
READ_TOGETHER = pytest.mark.xdist_group("sources")


def modules() -> dict[str, Path]:
    """Dotted name to file of every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a source, that of the module first."""
    return tuple(ast.walk(ast.parse(source)))
