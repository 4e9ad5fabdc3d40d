"""What a user's editor sees: real signatures for every public name, under mypy --strict and pyright."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardwise

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("front door")]

PROGRAMS = Path(__file__).parent / "front_door"
RIGHT, WRONG = PROGRAMS / "right.py", PROGRAMS / "wrong.py"
SOURCES = Path(shardwise.__file__).parents[1]


def marked(path: Path) -> set[int]:
    """The lines that the file says are wrong."""
    return {line for line, text in enumerate(path.read_text().splitlines(), 1) if text.endswith("# wrong")}


def errors_by_mypy(folder: Path) -> Iterator[tuple[str, int]]:
    """File and line of what mypy reports, with the settings of a user who has none but ``--strict``."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    environment = {**os.environ, "MYPYPATH": str(SOURCES), "MYPY_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [*command, "--config-file", os.devnull, str(RIGHT), str(WRONG)],
        env=environment, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    for name, line in re.findall(r"^(.+?):(\d+): error", done.stdout, re.MULTILINE):
        yield Path(name).name, int(line)


def errors_by_pyright(folder: Path) -> Iterator[tuple[str, int]]:
    """File and line of what pyright reports in its strict mode, as errors."""
    settings = {"typeCheckingMode": "strict", "include": [str(RIGHT), str(WRONG)], "extraPaths": [str(SOURCES)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            yield Path(one["file"]).name, one["range"]["start"]["line"] + 1


CHECKERS = {"mypy": errors_by_mypy, "pyright": errors_by_pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def reported(request, tmp_path_factory):
    """By file, the lines that a type checker reports in one run over both files."""
    if request.param == "pyright" and importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed: pip install basedpyright")
    lines = {RIGHT.name: set(), WRONG.name: set()}
    for name, line in CHECKERS[request.param](tmp_path_factory.mktemp(request.param)):
        if name in lines:
            lines[name].add(line)
    return lines


@pytest.mark.slow_but_one_in(2)
def test_right_uses_of_every_kind_are_accepted(reported):
    assert reported[RIGHT.name] == set()


def test_wrong_uses_are_reported_at_their_lines(reported):
    assert reported[WRONG.name] == marked(WRONG)


def test_the_marked_lines_are_many():
    assert len(marked(WRONG)) > 10
