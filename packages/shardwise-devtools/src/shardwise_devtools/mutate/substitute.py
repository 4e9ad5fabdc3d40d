"""How does a program run with files changed, while nothing on disk changes? Their text is handed to Python's importer.

Places in findings are those of the real files, and excerpts show the changed text.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any, ClassVar

from shardwise.collectives.regions import no_typecheck
from shardwise.host.attribute_patch import patched
from shardwise.host.program import Loaded, Program
from shardwise.verifier.records.subject import filled


@dataclass(frozen=True)
class Changed:
    """A script that runs with other text in the place of some files, by path.

    A subject of ``shardwise verify``. ``checked``: False for a run in which the checker has no hand.
    """

    program: Program
    texts: Mapping[Path, str] = field(default_factory=dict)
    checked: bool = True
    joined: ClassVar[bool] = False

    def __str__(self) -> str:
        return str(self.program)

    def declared(self, before: Callable[[], object]) -> Changed:
        return replace(self, program=replace(self.program, before=before))

    def prepare(self, sizes: Mapping[str, int]) -> Callable[[object], object]:
        """What runs it on a mesh of these sizes."""
        program = replace(self.program, arguments=tuple(filled(word, sizes) for word in self.program.arguments))
        loaded = program.load()
        main = Path(loaded.file).resolve()
        if (text := self.texts.get(main)) is not None:
            loaded = Loaded(compile(text, loaded.file, "exec", dont_inherit=True), loaded.file, loaded.spec)

        def run(mesh: object) -> None:
            with contextlib.ExitStack() as stack:
                for path, text in self.texts.items():
                    shown = loaded.file if path == main else str(path)
                    stack.enter_context(substituted(path, text, shown=shown))
                if not self.checked:
                    stack.enter_context(no_typecheck())
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
