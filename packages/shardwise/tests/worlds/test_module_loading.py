"""What a script has not loaded is not loaded for it, and is met when the script loads it."""

import subprocess
import sys

import pytest

from shardwise.host.module_loading import when_loaded

CHECK = """
import sys
from shardwise.cli.main import main
try:
    main(["check", sys.argv[1]])
except SystemExit:
    pass
print([name for name in ("sympy", "torch.distributed.tensor", "torch.distributed.fsdp") if name in sys.modules])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "met_later.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "met_later"
    sys.modules.pop("met_later", None)


def test_a_module_is_met_once_it_is_loaded_and_whole(module):
    met = []
    with when_loaded(module, lambda loaded: met.append(loaded.value)):
        assert met == []
        __import__(module)
        __import__(module)
    assert met == [1]


def test_a_module_that_is_loaded_is_met_at_once_and_one_loaded_afterwards_is_not(module):
    met, finders = [], list(sys.meta_path)
    with when_loaded(module, met.append):
        pass
    assert sys.meta_path == finders
    __import__(module)
    assert met == []
    with when_loaded(module, met.append):
        assert met == [sys.modules[module]]


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "loaded"),
    [
        ("import torch\n", "[]"),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel\n",
            "['sympy', 'torch.distributed.tensor', 'torch.distributed.fsdp']",
        ),
    ],
    ids=["plain", "FSDP"],
)
def test_a_check_loads_dtensors_only_for_a_script_that_does(script, loaded, tmp_path):
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-c", CHECK, str(tmp_path / "script.py")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.stdout.splitlines()[-1] == loaded, run.stderr
