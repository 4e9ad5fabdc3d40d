"""The commands on ranks that torchrun has started: both verdicts, one report, and an end whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main

from .forked_launcher import forked

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python"), pytest.mark.xdist_group("verify")]

SCRIPT = """\
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

mistake = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cuda", (ranks,), mesh_dim_names=("tp",))


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        y = y.clone()
        dist.all_reduce(y, group=mesh.get_group("tp"))
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        up, down = torch.randn(128, 64, generator=generator), torch.randn(64, 128, generator=generator)
        self.up = nn.Parameter(up.chunk(ranks)[rank].clone())
        self.down = nn.Parameter(down.chunk(ranks, 1)[rank].clone())

    def forward(self, x):
        return Sum.apply(torch.relu(x @ self.up.T) @ self.down.T / 64)


model = Layers()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.linspace(-1, 1, 256).view(4, 64)
for step in range(2):
    if mistake == "raise" and rank == 1 and step == 1:
        raise RuntimeError("the second step fails")
    if mistake == "vanish" and rank == 1 and step == 1:
        os.kill(os.getpid(), 9)
    model(x).square().mean().backward()
    if mistake == "gradient" and ranks > 1:
        model.up.grad *= 3
    optimizer.step()
    optimizer.zero_grad()
print("rank", rank, "is done")
dist.destroy_process_group()
"""


CLEAN = "numbers: clean; 10 tensors equal to the run on one rank"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script and its references."""
    folder = tmp_path_factory.mktemp("launched")
    script = folder / "train.py"
    script.write_text(SCRIPT, "utf-8")
    recorded = CliRunner().invoke(main, ["verify", "--record", str(folder / "references"), str(script)])
    assert recorded.exit_code == 0, recorded.output
    assert "records of the run on one rank" in recorded.stdout
    return folder


def launched(folder: Path, *words: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    """The command on ranks that are each a process that torchrun starts."""
    paths = os.pathsep.join(path for path in sys.path if path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.run(
        [*torchrun, "-m", "shardwise", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


Launcher = Callable[..., "subprocess.CompletedProcess[str]"]
by_torchrun_at_night = pytest.mark.parametrize(
    "launcher", [pytest.param(launched, marks=pytest.mark.nightly, id="torchrun"), pytest.param(forked, id="forked")]
)


def verified(folder: Path, mistake: str = "", launcher: Launcher = launched) -> subprocess.CompletedProcess[str]:
    return launcher(folder, "verify", "train.py", "--references", "references", *(["--", mistake] if mistake else []))


@pytest.mark.slow
def test_a_right_program_is_clean_and_its_tensors_need_not_travel(project):
    ended = verified(project)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == CLEAN
    assert ended.stdout.count("numbers:") == 1, "one rank prints"
    assert "0 B of 0 tensors asked for" in ended.stderr
    assert ended.stderr.count("is done") == 1, "of what the program prints, what rank 0 does is shown"


@by_torchrun_at_night
def test_a_wrong_gradient_is_found_and_shown(project, launcher):
    ended = verified(project, "gradient", launcher)
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    said = "gradient of up in step 1 differs from the run on one rank: 3 times as much throughout"
    assert lines[0] == f"wrong numbers: {said}"
    assert any("optimizer.step()" in line for line in lines)
    assert any("3 times as much throughout" in line for line in lines)
    assert "pieces along dim 0 over tp" in ended.stdout


@pytest.mark.slow
@by_torchrun_at_night
def test_a_rank_that_raises_ends_the_job_with_one_report(project, launcher):
    ended = verified(project, "raise", launcher)
    assert ended.returncode != 0
    first = ended.stdout.splitlines()[0]
    assert first.startswith("the run on the mesh did not come to its end: rank 1 of 2 raised RuntimeError: the second")
    assert ended.stdout.count("did not come to its end") == 1


@pytest.mark.nightly
def test_groups_made_by_hand_are_the_axes_of_a_mesh(project):
    program = Path(__file__).parents[1] / "programs" / "unannotated" / "right" / "raw_groups_3d.py"
    ended = launched(project, "verify", str(program), ranks=4)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "numbers: clean" in ended.stdout


@pytest.mark.nightly
def test_a_rank_that_is_killed_is_named(project):
    ended = verified(project, "vanish")
    assert ended.returncode != 0
    assert "rank 1 of 2 ended without a word" in ended.stdout.splitlines()[0]
    assert ended.stdout.splitlines()[-1].startswith("no verdict")


@by_torchrun_at_night
def test_infer_makes_its_references_and_runs_on_the_launched_ranks(project, launcher):
    ended = launcher(project, "infer", "train.py")
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["up", "[64,", "64]", "{tp:", "S(0)}"] in lines
    assert ["down", "[64,", "64]", "{tp:", "S(1)}"] in lines
    assert ended.stdout.splitlines()[-1] == "3 tensors on mesh tp=2"


@by_torchrun_at_night
def test_check_checks_every_launched_rank_as_it_runs(project, launcher):
    (project / "typed.py").write_text(
        SCRIPT.replace("class Sum", "import shardwise as sw\n\n\nclass Sum", 1).replace(
            "for step in range(2):",
            'sw.assert_type(x, {"tp": sw.P})\nif rank == 1:\n    x.relu()\nfor step in range(2):',
        ),
        "utf-8",
    )
    ended = launcher(project, "check", "typed.py", "--no-observe")
    assert ended.returncode == 1
    assert ended.stdout.startswith("SW112 partial-sum-in-nonlinear-op: relu needs complete values"), ended.stderr
    assert ended.stdout.count("SW112") == 2, "the finding of rank 1, and where to read more"


SAMPLED = """\
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(16, 6), torch.randint(0, 3, (16,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=2))
model = nn.Linear(6, 3)
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(ddp(x), y)
    if "scaled" in sys.argv:
        loss = loss / dist.get_world_size()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "code"), [("", 0), pytest.param("scaled", 1, marks=pytest.mark.nightly)], ids=["right", "scaled"]
)
def test_ranks_that_draw_their_own_batches_run_again_with_all_of_them_on_one_rank(tmp_path, mistake, code):
    (tmp_path / "sampled.py").write_text(SAMPLED, "utf-8")
    ended = launched(tmp_path, "verify", "sampled.py", *(["--", mistake] if mistake else []))
    assert "one rank was given what all ranks drew together: 2 batches" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == code
    assert ended.stdout.count("numbers:") == 1, "the first of the two runs reports nothing"
    assert ("wrong numbers: gradient of" in ended.stdout) is bool(code)
    assert ended.stderr.count("once more") == 1


NOISY = """\
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.Generator().manual_seed(1)
torch.manual_seed(100 + rank)
for step in range(2):
    x = torch.randn(8, 6, generator=rows).chunk(world)[rank]
    loss = (model if "unwrapped" in sys.argv else ddp)(x + 0.1 * torch.randn_like(x)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "code"), [("", 0), pytest.param("unwrapped", 1, marks=pytest.mark.nightly)], ids=["right", "unwrapped"]
)
def test_ranks_that_draw_their_own_numbers_run_again_with_all_of_them_on_one_rank(tmp_path, monkeypatch, mistake, code):
    (tmp_path / "noisy.py").write_text(NOISY, "utf-8")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    ended = launched(tmp_path, "verify", "noisy.py", *(["--", mistake] if mistake else []))
    assert "one rank was given what all ranks drew together: 4 random draws" in ended.stdout, (
        ended.stdout + ended.stderr
    )
    assert ended.returncode == code
    assert not list((tmp_path / "temporary").glob("shardwise-*"))


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["raise", pytest.param("vanish", marks=pytest.mark.nightly)])
def test_a_job_that_a_rank_ends_leaves_no_references_behind(project, tmp_path, monkeypatch, mistake):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = forked(project, "verify", "train.py", "--", mistake)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert not list(tmp_path.glob("shardwise-*"))


def test_a_mesh_that_the_launcher_has_no_ranks_for_is_refused(project, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    for command in ("verify", "check", "infer"):
        ended = CliRunner().invoke(main, [command, str(project / "train.py"), "--mesh", "dp=2,tp=2"])
        assert ended.exit_code == 2
        assert "--mesh dp=2,tp=2 has 2 x 2 = 4 ranks, and the launcher has started 2" in ended.output
    imagined = CliRunner().invoke(main, ["check", str(project / "train.py"), "--fake", "--ranks", "all"])
    assert "--ranks, --fake is for ranks that are imagined" in imagined.output


def test_forked_ranks_read_references_too(project):
    words = ["verify", "--references", str(project / "references"), str(project / "train.py"), "--mesh", "tp=2"]
    forked = CliRunner().invoke(main, words)
    assert forked.stdout.splitlines()[-1] == CLEAN
    other = CliRunner().invoke(main, [*words, "--every"])
    assert other.exit_code == 2
    assert "recorded without --every, and this run is with it" in other.output
