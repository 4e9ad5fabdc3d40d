"""What a user's editor sees: real signatures for every public name, under mypy --strict and pyright."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shardwise

pytestmark = pytest.mark.processes

PROGRAMS = Path(__file__).parent / "front_door"
RIGHT, WRONG = PROGRAMS / "right.py", PROGRAMS / "wrong.py"
SOURCES = Path(shardwise.__file__).parents[1]


def marked(path: Path) -> set[int]:
    """The lines that the file says are wrong."""
    return {line for line, text in enumerate(path.read_text().splitlines(), 1) if text.endswith("# wrong")}


def lines_by_mypy(path: Path, folder: Path) -> set[int]:
    """The lines that mypy reports, with the settings of a user who has none but ``--strict``."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path)]
    environment = {**os.environ, "MYPYPATH": str(SOURCES), "MYPY_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [*command, "--config-file", os.devnull], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {
        int(line) for name, line in re.findall(r"^(.+?):(\d+): error", done.stdout, re.MULTILINE) if path.name in name
    }


def lines_by_pyright(path: Path, folder: Path) -> set[int]:
    """The lines that pyright reports in its strict mode, as errors."""
    settings = {"typeCheckingMode": "strict", "include": [str(path)], "extraPaths": [str(SOURCES)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(folder), "--pythonpath", sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


CHECKERS = {"mypy": lines_by_mypy, "pyright": lines_by_pyright}


@pytest.fixture(params=CHECKERS)
def reported_lines(request, tmp_path):
    if request.param == "pyright" and importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed: pip install basedpyright")
    return lambda path: CHECKERS[request.param](path, tmp_path)


def test_right_uses_of_every_kind_are_accepted(reported_lines):
    assert reported_lines(RIGHT) == set()


def test_wrong_uses_are_reported_at_their_lines(reported_lines):
    assert reported_lines(WRONG) == marked(WRONG)


def test_the_marked_lines_are_many():
    assert len(marked(WRONG)) > 10
