"""How does a program run with files changed, while nothing on disk changes?

Places in findings are those of the real files, and excerpts show the changed text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from shardwise.collectives.regions import no_typecheck
from shardwise.host.overlay import overlaid
from shardwise.host.program import Program
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
        texts = {str(path): text for path, text in self.texts.items()}
        with overlaid(texts):
            loaded = program.load()

        def run(mesh: object) -> None:
            with overlaid(texts), contextlib.nullcontext() if self.checked else no_typecheck():
                program.run(loaded)

        return run
