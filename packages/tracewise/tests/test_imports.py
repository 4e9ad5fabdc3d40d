"""Which way imports go: the arrows of the layout, no torch, no shardwise, and nothing heavy for ``--version``."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracewise

PACKAGE = Path(tracewise.__file__).parent
LEVELS = (
    {"read"},
    {"model"},
    {"find"},
    {"ranks", "compare"},
    {"tables"},
    {"report", "store"},
    {"explore", "compat"},
    {"cli"},
)
LEVEL_OF = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
FORBIDDEN = {"torch", "shardwise", "shardwise_devtools"}
# What only the extras bring; the folders that may ask for it.
EXTRAS = {"duckdb", "pyarrow", "starlette", "uvicorn"}
EXTRA_FOLDERS = {"store", "explore"}
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(module: str, is_package: bool, source: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that ``module`` imports, at any depth of its source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                base = ".".join([*parts[: len(parts) - node.level + is_package], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def wrong_imports(module: str, is_package: bool, source: str) -> list[str]:
    """The imports of ``module`` that do not point left, or name what tracewise does without."""
    parts = module.split(".")
    here = parts[1] if len(parts) > 1 else ""
    errors = []
    for line, name in imported(module, is_package, source):
        top, *rest = name.split(".")
        if top in FORBIDDEN:
            errors.append(f"{module}:{line} imports {name}; tracewise does without {top}")
        if top in EXTRAS and here not in EXTRA_FOLDERS and here != "cli":
            errors.append(f"{module}:{line} imports {name}, which only {sorted(EXTRA_FOLDERS)} may need")
        there = rest[0] if top == "tracewise" and rest else ""
        if there in LEVEL_OF and here in LEVEL_OF and there != here and LEVEL_OF[there] >= LEVEL_OF[here]:
            errors.append(f"{module}:{line} imports {name}, but {there} is not left of {here}")
    return errors


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_left(module):
    path = MODULES[module]
    assert wrong_imports(module, path.name == "__init__.py", path.read_text()) == []


def test_every_folder_has_a_level():
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in MODULES.values() if path.parent != PACKAGE}
    assert folders <= LEVEL_OF.keys()


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("tracewise.read.log", "from tracewise.model.ids import CompileId", "model is not left of read"),
        ("tracewise.find.problems", "def f():\n    from tracewise.report import pages", "report is not left of find"),
        ("tracewise.model.build", "import torch", "does without torch"),
        ("tracewise.report.pages", "import duckdb", "may need"),
        ("tracewise.find.problems", "from ..report import pages", "report is not left of find"),
    ],
)
def test_a_wrong_import_is_found(module, source, expected):
    (error,) = wrong_imports(module, False, source)
    assert expected in error


@pytest.mark.processes
@pytest.mark.processes
def test_asking_for_the_version_loads_no_reader():
    code = "import sys, tracewise.cli.main; print(*[m for m in sys.modules if m.split('.')[0] in {'orjson', 'jinja2'}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
