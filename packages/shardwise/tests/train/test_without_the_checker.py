"""A training job runs without the checker: every public runtime function in a fresh process, annotated or erased."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardwise
from shardwise import train

from .training_job import USES

CHECKING = {"typecheck", "verify"}
"""What is called to be checked; everything else that can be called is a runtime function."""


def _runtime_functions():
    public = {name: getattr(package, name) for package in (shardwise, train) for name in package.__all__}
    called = {name for name, value in public.items() if inspect.isroutine(value) or inspect.isclass(value)}
    values = ("shardwise.types", "shardwise.diagnostics")
    return called - CHECKING - {name for name in called if public[name].__module__.startswith(values)}


def test_the_job_uses_every_public_runtime_function():
    assert set(USES) - {"TYPE_CHECKING"} == _runtime_functions()


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize("erase", ["1", "0"])
def test_a_training_job_never_loads_the_checker(erase):
    job = Path(__file__).with_name("training_job.py")
    done = subprocess.run(
        [sys.executable, str(job)], env={**os.environ, "SHARDWISE_ERASE": erase}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
