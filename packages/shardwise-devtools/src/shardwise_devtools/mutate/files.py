"""Which files are the program? The script and what it imports from its own folder, found without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .source import Source


def files_of(script: Path) -> list[Source]:
    """The script first, then the modules and packages beside it that it imports, directly or not.

    Errors: OSError, SyntaxError or UnicodeDecodeError for a file that cannot be read.
    """
    found: dict[Path, Source] = {}
    waiting = [script.resolve()]
    while waiting:
        path = waiting.pop(0)
        if path not in found:
            found[path] = source = Source(path, path.read_text())
            waiting += _neighbours(source, script.resolve().parent)
    return list(found.values())


def _neighbours(source: Source, folder: Path) -> Iterator[Path]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = folder if not node.level else source.path.parents[node.level - 1]
            parts = node.module.split(".") if node.module else []
            yield from _module(base, parts)
            for alias in node.names:
                yield from _module(base, [*parts, alias.name])


def _module(folder: Path, parts: list[str]) -> Iterator[Path]:
    """The files of a dotted name below ``folder``, those of its packages included."""
    for depth in range(1, len(parts) + 1):
        path = folder.joinpath(*parts[:depth])
        for candidate in (path / "__init__.py", path.with_suffix(".py")):
            if candidate.is_file():
                yield candidate.resolve()
