"""How tests are dealt out to workers: those of one ``xdist_group`` share a worker, so that a dear fixture runs once."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .documents import ROOT

pytestmark = pytest.mark.processes

GROUPED = """
import os, pathlib, pytest

pytestmark = pytest.mark.xdist_group("dear")

@pytest.mark.parametrize("number", range(8))
def test_it(number):
    with pathlib.Path("workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_the_tests_of_a_group_run_on_one_worker(tmp_path):
    """Fails where pytest-xdist writes names that pytest does not read, as 3.8.0 does with pytest 9.2."""
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run([*command, "-n", "2", "--dist", "loadgroup"], cwd=tmp_path, env=environment, check=True)
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 16
    assert len(set(workers)) == 1


def test_make_deals_tests_out_by_group():
    (command,) = re.findall(r"^PYTEST += (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command.endswith("--dist loadgroup")


@pytest.mark.slow
def test_a_test_that_starts_a_process_unmarked_fails(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "packages/conftest.py").read_text())
    (tmp_path / "test_starting.py").write_text(
        "import os, subprocess, sys, pytest\n"
        "def test_unmarked_command(): subprocess.run([sys.executable, '-c', ''])\n"
        "def test_unmarked_fork(): os.fork() or os._exit(0)\n"
        "@pytest.mark.processes\n"
        "def test_marked(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = processes\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed" in result.stdout
    assert "is marked pytest.mark.processes" in result.stdout


SIZES = """
import pytest

@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("number", range(7))
def test_family(number): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.parametrize("number", range(10))
def test_quick(number): ...
"""


def test_what_is_slow_is_left_out_and_no_test_is_lost(tmp_path, warm_python):
    (tmp_path / "conftest.py").write_text((ROOT / "packages/conftest.py").read_text())
    (tmp_path / "test_sizes.py").write_text(SIZES)

    def collected(*words):
        command = [warm_python, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *words]
        lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout.splitlines()
        return [line.partition("::")[2] for line in lines if "::" in line]

    every = collected("--hypothesis-profile", "nightly")
    day, slow = collected("-m", "not slow"), collected("-m", "slow")
    assert len(every) == 18
    assert sorted(day + slow) == sorted(every)
    assert sum(name.startswith("test_family") for name in day) == 3
    assert "test_slow" in slow
    fast = collected("-m", "not slow", "--sample", "5")
    assert set(fast) < set(day)
    assert sum(name.startswith("test_quick") for name in fast) == 2
    assert collected("test_sizes.py::test_slow") == ["test_slow"]
