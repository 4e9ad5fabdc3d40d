"""Which rank is this process, as its launcher says? And how do launched ranks talk to each other?"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.host.accelerators.devices import nothing_compiled
from shardwise.host.launcher import LaunchedRank, launched_rank, without_launcher
from shardwise.host.torchrun import TorchrunJob

SAID = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def said(monkeypatch):
    for name in list(os.environ):
        if name not in without_launcher():
            monkeypatch.delenv(name)
    for name, value in SAID.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_launcher_says_which_rank_this_is(said):
    assert launched_rank() == LaunchedRank(3, 4, 0, 3), "without a word of nodes every rank may be on its own"
    said.setenv("LOCAL_RANK", "1")
    said.setenv("GROUP_RANK", "1")
    assert launched_rank() == LaunchedRank(3, 4, 1, 1)
    assert not set(without_launcher()) & {*SAID, "LOCAL_RANK", "GROUP_RANK"}


@pytest.mark.parametrize("missing", SAID)
def test_without_all_of_it_no_launcher_has_started_this(said, missing):
    said.delenv(missing)
    assert launched_rank() is None


def test_jobs_of_our_own_and_of_one_rank_are_not_launched(said):
    for name, value in TorchrunJob(4, 3).variables.items():
        said.setenv(name, value)
    assert launched_rank() is None
    said.delenv("TORCHELASTIC_RUN_ID")
    said.setenv("WORLD_SIZE", "1")
    said.setenv("RANK", "0")
    assert launched_rank() is None
    assert launched_rank(alone=True) is None


def test_a_job_of_one_rank_is_launched_where_torchrun_has_and_somebody_asks(said):
    for name, value in {"WORLD_SIZE": "1", "RANK": "0", "TORCHELASTIC_RUN_ID": "none"}.items():
        said.setenv(name, value)
    assert launched_rank() is None
    assert launched_rank(alone=True) == LaunchedRank(0, 1, 0, 0)


@pytest.mark.parametrize(("name", "value"), [("RANK", "4"), ("RANK", "first"), ("WORLD_SIZE", "-1")])
def test_what_cannot_be_is_refused_by_name(said, name, value):
    said.setenv(name, value)
    with pytest.raises(SpmdValueError, match=f"{name}=.*{value}"):
        launched_rank()


PROGRAM = """
import sys
from shardwise.host.launcher import launched_rank
from shardwise.worlds.world import LaunchedWorld
from shardwise.worlds.launched.world import joined_world

me = launched_rank()
with joined_world(me, 60.0, lambda loss: print("lost:", loss.text, flush=True)) as world:
    assert isinstance(world, LaunchedWorld)
    assert (world.size, world.ranks) == (3, (0, 1, 2))
    squares = world.run(lambda base: (base + me.rank) ** 2, 10)
    large = list(world.job.gather("large", bytes([me.rank]) * (20 << 20)))
    if me.rank == 0:
        assert [(one[0], len(one)) for one in large] == [(rank, 20 << 20) for rank in range(3)]
    shared = list(world.job.gather_shared("shared", {"even": me.rank % 2 == 0}))
    if me.rank == 0:
        assert shared == [{"even": True}, {"even": False}, {"even": True}]
        assert shared[0] is shared[2], "what two ranks gave alike is one object"
    print(me.rank, squares, world.agree(sum(squares)), flush=True)
"""


ON_ACCELERATORS = """
import torch
import torch.distributed as dist
from shardwise import R, V, all_reduce, reinterpret, P
from shardwise.host.launcher import launched_rank
from shardwise.mesh.entry import current_entry
from shardwise.worlds.launched.rank import launched_world

def sets_device(*args):
    raise AssertionError("which device a rank takes is the program's business")

torch.accelerator.is_available = lambda: True
torch.accelerator.set_device_index = torch.cpu.set_device = sets_device
made = []
with launched_world(launched_rank(), {"tp": 2}, made.append):
    assert not dist.is_initialized()
    assert list(current_entry().names) == ["tp"], "types are told by its axes before there is a group"
    dist.init_process_group("gloo")
    assert dist.get_backend() == "gloo", "as the program asks"
    x = reinterpret(torch.ones(3), "tp", src=V, dst=P)
    assert all_reduce(x, "tp", src=P, dst=R).tolist() == [2.0] * 3
    assert made == [], "the mesh of the command line is none that the program makes"
    dist.destroy_process_group()
print("done", flush=True)
"""


def run_by_torchrun(folder, program, ranks):
    """What the processes of the program print, in order of text."""
    file = folder / "program.py"
    file.write_text(program, "utf-8")
    paths = os.pathsep.join(path for path in sys.path if path)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    ended = subprocess.run(
        # A file for each rank: ``print`` may write a line and its end apart, and those of two ranks would mix.
        [*launch, "--log-dir", str(folder), "--redirects", "1", str(file)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return sorted(line for log in folder.rglob("stdout.log") for line in log.read_text("utf-8").splitlines())


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
def test_launched_ranks_gather_and_agree(tmp_path):
    assert run_by_torchrun(tmp_path, PROGRAM, 3) == ["0 [100, 121, 144] 365", "1 [] 365", "2 [] 365"]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("warm_python")
def test_on_accelerators_back_end_and_device_are_the_programs_own(tmp_path):
    assert run_by_torchrun(tmp_path, ON_ACCELERATORS, 2) == ["done", "done"]


def test_nothing_is_compiled_where_numbers_are_recorded():
    model = torch.nn.Linear(2, 2)
    with nothing_compiled():
        assert torch.compile(model, mode="max-autotune") is model
        assert torch.compile(fullgraph=True)(model) is model
        model.compile()
    assert type(model)(2, 2)._compiled_call_impl is None
    assert model._compiled_call_impl is None
