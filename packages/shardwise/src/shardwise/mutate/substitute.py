"""How does a program run with one file changed, while nothing on disk changes? Its text is handed to Python's importer.

Places in findings are those of the real file, and excerpts show the changed text.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

from shardwise.simulator.patching import patched
from shardwise.simulator.program import Loaded, Program
from shardwise.verifier.subject import filled


@dataclass(frozen=True)
class Changed:
    """A script that runs with ``text`` in the place of one of its files; with the script's own text if None.

    A subject of ``shardwise verify``.
    """

    program: Program
    path: Path | None = None
    text: str = ""

    def __str__(self) -> str:
        return str(self.program)

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[Any], Any]:
        """What runs it on a mesh of these sizes."""
        program = replace(self.program, arguments=tuple(filled(word, sizes) for word in self.program.arguments))
        loaded = program.load()
        path, text = self.path, self.text
        if path is None:
            return lambda mesh: program.run(loaded)
        if Path(loaded.file).resolve() == path:
            loaded = Loaded(compile(text, loaded.file, "exec", dont_inherit=True), loaded.file, loaded.spec)

        def run(mesh: Any) -> None:
            with substituted(path, text, shown=loaded.file if Path(loaded.file).resolve() == path else str(path)):
                program.run(loaded)

        return run


@contextlib.contextmanager
def substituted(path: Path, text: str, *, shown: str) -> Iterator[None]:
    """Whoever imports the file at ``path`` inside the block gets ``text``; excerpts of ``shown`` show it."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if Path(self.path).resolve() == path:
            return compile(text, self.path, "exec", dont_inherit=True)
        return original(self, fullname)

    lines = text.splitlines(keepends=True)
    before = linecache.cache.get(shown)
    linecache.cache[shown] = (len(text), None, lines, shown)
    try:
        with patched(importlib.machinery.SourceFileLoader, "get_code", get_code):
            yield
    finally:
        if before is None:
            linecache.cache.pop(shown, None)
        else:
            linecache.cache[shown] = before
