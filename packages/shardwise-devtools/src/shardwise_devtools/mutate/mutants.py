"""Which mutants does a program have? Those of all its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .files import files_of
from .idioms import messengers, wrappers
from .operators import Mutant, mutants_of
from .scene import Scene


def mutants_in(script: Path, axes: tuple[str, ...], operators: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of a script and of what it imports from its own folder, file by file.

    ``axes``       names of the mesh axes.
    ``operators``  names of operators of mutation; empty: all of them.
    Errors: OSError, SyntaxError or UnicodeDecodeError for a file that cannot be read.
    """
    sources = files_of(script)
    known, sending = wrappers(sources), messengers(sources)
    return [mutant for source in sources for mutant in mutants_of(Scene(source, axes, known, sending), operators)]
