"""Several ranks of a program side by side, as a user runs them: what diverges is found, what agrees passes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from shardwise.cli.options.ranks_option import corners

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

START = """\
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh["dp"].get_group(), mesh["tp"].get_group()
current = spmd.set_current_mesh(mesh)
current.__enter__()
x = spmd.assert_type(torch.ones(4), {"dp": V, "tp": R}) * 2
"""


@pytest.fixture
def ranks(project):
    """What four ranks diverge in, as pairs of code and line after ``START``, and the whole report of a program."""

    def run(source, *options, start=START):
        project.write(start + source)
        result = project.check("train.py", "--format", "json", *(options or ("--world-size", "4", "--ranks", "all")))
        report = json.loads(result.stdout)
        assert result.exit_code == report["exit_code"]
        lines = start.count("\n")
        diverging = [one for one in report["findings"] if one["code"].startswith("SW5")]
        return [(one["code"], one["place"]["line"] - lines) for one in diverging], report

    return run


WRONG = {
    "a branch on the rank before a collective": ("SW503", "if rank == 0:\n    dist.all_reduce(torch.ones(2))\n", 2),
    "a branch, then another collective": (
        "SW501", "if rank == 0:\n    dist.all_reduce(torch.ones(2))\ndist.barrier()\n", 2,
    ),
    "a branch on a coordinate, over an axis that it splits": (
        "SW503", "if mesh.get_local_rank('tp') == 0:\n    dist.all_reduce(torch.ones(2), group=tp)\n", 2,
    ),
    "uneven loops": ("SW503", "for _ in range(2 + rank % 2):\n    dist.all_reduce(torch.ones(2))\n", 2),
    "an early return": (
        "SW503", "def step():\n    if rank == 3:\n        return\n    dist.all_reduce(torch.ones(2))\nstep()\n", 4,
    ),
    "an exception on one rank": (
        "SW503", "if rank == 2:\n    raise ValueError('bad shard')\ndist.all_reduce(torch.ones(2))\n", 3,
    ),
    "an exception that one rank handles": (
        "SW503",
        "try:\n    if rank == 2:\n        raise ValueError('bad shard')\n    dist.all_reduce(torch.ones(2))\n"
        "except ValueError:\n    pass\n",
        4,
    ),
    "leaving without a word": ("SW503", "if rank == 1:\n    os._exit(0)\ndist.barrier()\n", 3),
    "groups crossed": (
        "SW504",
        "one = torch.ones(2)\nfor group in (dp, tp) if rank in (0, 3) else (tp, dp):\n"
        "    dist.all_reduce(one, group=group)\n",
        3,
    ),
    "different reductions": (
        "SW505", "dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM)\n", 1,
    ),
    "different dtypes": (
        "SW505", "dist.all_reduce(torch.ones(2, dtype=torch.float64 if rank == 0 else torch.float32))\n", 1,
    ),
    "different sizes": ("SW505", "dist.all_reduce(torch.ones(2 + rank))\n", 1),
    "different roots": ("SW505", "dist.broadcast(torch.ones(2), src=rank % 2)\n", 1),
    "splits that do not agree": (
        "SW505",
        "mine = [1, 2, 1, 1] if rank == 0 else [1, 1, 1, 1]\n"
        "out = torch.empty(sum(mine))\ndist.all_to_all_single(out, torch.ones(sum(mine)), mine, mine)\n",
        3,
    ),
    "rows of different lengths": (
        "SW505", "y = torch.ones(2 + rank)\ndist.all_gather([torch.empty_like(y) for _ in range(world)], y)\n", 2,
    ),
    "a group that one rank makes": ("SW502", "if rank == 0:\n    dist.new_group([0, 1])\ndist.new_group([2, 3])\n", 2),
    "a receive without a send": ("SW506", "if rank == 1:\n    dist.recv(torch.ones(2), 0)\n", 2),
    "a send without a receive, not waited for": ("SW506", "if rank == 1:\n    dist.isend(torch.ones(2), 0)\n", 2),
    "a ring of sends": (
        "SW504", "dist.send(torch.ones(2), (rank + 1) % 4)\ndist.recv(torch.ones(2), (rank - 1) % 4)\n", 1,
    ),
    "objects from one rank only": ("SW503", "if rank == 0:\n    dist.broadcast_object_list([1], src=0)\n", 2),
    "in a backward pass": (
        "SW503",
        "class Sum(torch.autograd.Function):\n    forward = staticmethod(lambda ctx, x: x.clone())\n    @staticmethod\n"
        "    def backward(ctx, grad):\n        if rank == 0:\n            dist.all_reduce(grad, group=dp)\n"
        "        return grad\nw = torch.ones(2, requires_grad=True)\nSum.apply(w).sum().backward()\n",
        6,
    ),
    "a bucket that DDP reduces": (
        "SW501",
        "model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))\n"
        "for _ in range(2 if rank == 0 else 1):\n    model(torch.ones(1, 2)).sum().backward()\ndist.barrier()\n",
        3,
    ),
}  # fmt: skip


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", WRONG)
def test_what_diverges_is_found_once_where_it_diverges(ranks, name):
    code, source, line = WRONG[name]
    found, report = ranks(source)
    assert found == [(code, line)], report
    assert report["exit_code"] == 1


RIGHT = {
    "a branch on a coordinate, over an axis that it does not split": (
        "if mesh.get_local_rank('tp') == 0:\n    dist.all_reduce(torch.ones(2), group=dp)\n"
    ),
    "the same call from two lines": (
        "if rank == 0:\n    dist.all_reduce(torch.ones(2))\nelse:\n    dist.all_reduce(torch.ones(2))\n"
    ),
    "rounds that the ranks agree on": (
        "for step in range(10):\n    more = torch.tensor([int(step < 2 + rank)])\n"
        "    dist.all_reduce(more, op=dist.ReduceOp.MIN)\n    if not more.item():\n        break\n"
        "    dist.all_reduce(torch.ones(2))\nassert step == 2, step\n"
    ),
    "as many rows as others ask for, and none from some": (
        "asked = torch.tensor([0, 0, 0, 0] if rank == 0 else [rank, 1, 2, 3])\ncome = torch.empty_like(asked)\n"
        "dist.all_to_all_single(come, asked)\nassert come.tolist() == [0] + [rank or k for k in (1, 2, 3)], come\n"
        "rows = torch.ones(int(asked.sum()), 2)\ngot = torch.empty(int(come.sum()), 2)\n"
        "dist.all_to_all_single(got, rows, come.tolist(), asked.tolist())\n"
    ),
    "more numbers than ranks, which others send": (
        "sent = torch.arange(8) + 100 * rank\ncome = torch.empty_like(sent)\ndist.all_to_all_single(come, sent)\n"
        "assert come.tolist() == [100 * other + 2 * rank + k for other in range(4) for k in (0, 1)], come\n"
    ),
    "a file that one rank writes before a barrier": (
        "import pathlib, time\nfile = pathlib.Path('state')\nif rank == 0:\n    time.sleep(0.5)\n"
        "    file.write_text('7')\ndist.barrier()\nassert file.read_text() == '7'\n"
    ),
    "a flag from one rank": (
        "stop = torch.tensor([int(rank == 0)])\ndist.broadcast(stop, src=0)\n"
        "if not stop:\n    dist.barrier()\nassert stop.item() == 1\n"
    ),
    "sizes that are exchanged first": (
        "size = torch.tensor([2 + rank])\nsizes = [torch.empty_like(size) for _ in range(world)]\n"
        "dist.all_gather(sizes, size)\nlargest = int(max(sizes))\nassert largest == 5\n"
        "dist.all_reduce(torch.ones(largest))\n"
    ),
    "splits that are exchanged first": (
        "sends = torch.tensor([rank, 1, 2, 3])\nreceives = torch.empty_like(sends)\n"
        "dist.all_to_all_single(receives, sends)\n"
        "out = torch.empty(int(receives.sum()))\n"
        "dist.all_to_all_single(out, torch.full((int(sends.sum()),), float(rank)), receives.tolist(), sends.tolist())\n"
        "assert set(out.tolist()) <= {0.0, 1.0, 2.0, 3.0} and len(out) == [6, 4, 8, 12][rank]\n"
    ),
    "objects from one rank": (
        "config = [{'lr': 1}] if rank == 0 else [None]\ndist.broadcast_object_list(config, src=0)\n"
        "assert config == [{'lr': 1}]\n"
        "everyone = [None] * world\ndist.all_gather_object(everyone, rank)\nassert everyone == [0, 1, 2, 3]\n"
    ),
    "a functional collective, waited for at its use": (
        "from torch.distributed._functional_collectives import all_reduce\n"
        "total = all_reduce(torch.tensor([float(rank)]), 'sum', dist.group.WORLD)\nassert total.item() == 6\n"
    ),
    "a handle that is waited for": (
        "flag = torch.tensor([rank])\nwork = dist.all_reduce(flag, async_op=True)\nwork.wait()\n"
        "assert flag.item() == 6\n"
    ),
    "a thread with a group of its own, which waits while the program goes on": (
        "import threading, time\nown = dist.new_group([0, 1, 2, 3])\n"
        "def gather(group):\n    found = [None] * 4\n    dist.all_gather_object(found, rank, group=group)\n"
        "    assert found == [0, 1, 2, 3]\n\n"
        "saving = threading.Thread(target=gather, args=(own,))\n"
        "if rank % 2 == 0:\n    saving.start()\n    time.sleep(0.3)\n"
        "gather(None)\n"
        "if rank % 2:\n    saving.start()\n"
        "saving.join()\n"
    ),
    "groups in any order, when nobody waits in between": (
        "works = [dist.all_reduce(torch.ones(2), group=group, async_op=True)\n"
        "         for group in ((dp, tp) if rank in (0, 3) else (tp, dp))]\n"
        "for work in works:\n    work.wait()\n"
    ),
    "a pipeline": (
        "shape = torch.tensor([3])\n"
        "if rank > 0:\n    dist.recv(shape, rank - 1)\n    assert shape.item() == 3 + rank - 1\n"
        "if rank < 3:\n    dist.send(shape + 1 if rank else torch.tensor([3]), rank + 1)\n"
    ),
    "messages from whoever has one": (
        "if rank == 0:\n    for size in (1, 1, 1):\n        got = torch.zeros(size)\n"
        "        source = dist.recv(got)\n        assert got.item() == source and source in (1, 2, 3)\n"
        "else:\n    dist.send(torch.full((1,), float(rank)), 0)\n"
    ),
    "a large message from whoever has one, in a group": (
        "pair = dist.new_group([1, 3])\nbig = torch.ones(100_000)\n"
        "if rank == 1:\n    assert dist.recv(big, group=pair) == 3\nif rank == 3:\n    dist.send(big, 1, group=pair)\n"
    ),
    "neighbours that swap": (
        "there = dist.P2POp(dist.isend, torch.ones(2), (rank + 1) % 4)\n"
        "here = dist.P2POp(dist.irecv, torch.ones(2), (rank - 1) % 4)\n"
        "for work in dist.batch_isend_irecv([there, here]):\n    work.wait()\n"
    ),
    "objects down a chain": (
        "box = [rank]\nif rank:\n    dist.recv_object_list(box, src=rank - 1)\n    assert box == [rank - 1]\n"
        "if rank < 3:\n    dist.send_object_list([rank], dst=rank + 1)\n"
    ),
    "scatter and gather": (
        "mine = torch.empty(1)\n"
        "dist.scatter(mine, [torch.tensor([float(r)]) for r in range(4)] if rank == 1 else None, src=1)\n"
        "assert mine.item() == rank\n"
        "all_of_them = [torch.empty(1) for _ in range(4)] if rank == 2 else None\n"
        "dist.gather(mine, all_of_them, dst=2)\nassert rank != 2 or torch.cat(all_of_them).tolist() == [0, 1, 2, 3]\n"
    ),
    "reduce and reduce_scatter": (
        "total = torch.tensor([float(rank)])\ndist.reduce(total, dst=0)\nassert rank or total.item() == 6\n"
        "part = torch.empty(1)\ndist.reduce_scatter_tensor(part, torch.arange(4.0))\nassert part.item() == 4 * rank\n"
    ),
    "what all have attends to what varies": (
        "attend = nn.MultiheadAttention(4, 2)\nspmd.assert_type(list(attend.parameters()), {'dp': R, 'tp': R})\n"
        "query = spmd.assert_type(torch.ones(2, 1, 4), {'dp': R, 'tp': R})\n"
        "memory = spmd.assert_type(torch.full((3, 1, 4), float(rank)), {'dp': V, 'tp': V})\n"
        "seen, _ = attend(query, memory, memory, need_weights=False)\n"
    ),
    "logging on one rank": "if rank == 0:\n    print(x.sum().item())\n",
    "a group of their own, made by its members alone": (
        "mine = dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], use_local_synchronization=True)\n"
        "dist.all_reduce(torch.ones(1), group=mine)\n"
    ),
    "all groups made by all": (
        "groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]\n"
        "dist.all_reduce(torch.ones(1), group=groups[rank // 2])\n"
    ),
    "fully_shard": (
        "from torch.distributed.fsdp import fully_shard\nmodel = nn.Linear(4, 4)\nfully_shard(model, mesh=mesh['dp'])\n"
        "model(torch.ones(1, 4)).sum().backward()\n"
    ),
    "DTensor": (
        "from torch.distributed.tensor import Shard, distribute_tensor\n"
        "distribute_tensor(torch.ones(4, 4), mesh['tp'], [Shard(0)]).full_tensor()\n"
    ),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", RIGHT)
def test_what_agrees_passes(ranks, name):
    found, report = ranks(RIGHT[name])
    assert (found, report["stopped"]) == ([], None), report


def test_a_value_that_comes_with_the_handle_is_no_call_of_the_program(ranks):
    report = ranks("sums = torch.ones(2)\nwork = dist.all_reduce(sums, async_op=True)\nwork.wait()\n")[1]
    assert report["lost"] == []


def test_ddp_agrees(project):
    """By a command of its own: autograd's threads in this process would not survive the fork of the ranks."""
    project.write(START + "nn.parallel.DistributedDataParallel(nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()\n")
    command = [sys.executable, "-m", "shardwise", "check", "train.py", "--world-size", "4", "--ranks", "all"]
    ran = subprocess.run(
        [*command, "--format", "json"], cwd=project.folder, capture_output=True, text=True, timeout=300
    )
    report = json.loads(ran.stdout)
    assert not [one for one in report["findings"] if one["code"].startswith("SW5")], report
    assert report["stopped"] is None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["--fake", "--device=meta"])
def test_tensors_without_storage_are_compared_too(ranks, kind):
    options = ("--world-size", "4", "--ranks", "all", kind)
    assert ranks("if rank == 0:\n    dist.all_reduce(torch.ones(2))\n", *options)[0] == [("SW503", 2)]
    assert (
        ranks("flag = torch.ones(2)\ndist.all_reduce(flag)\nif flag.sum() > 0:\n    dist.barrier()\n", *options)[0]
        == []
    )


def test_a_finding_of_all_ranks_is_told_once_and_one_of_some_with_their_numbers(ranks):
    source = (
        "bad = spmd.assert_type(torch.ones(2), {'dp': P, 'tp': R})\ntorch.relu(bad)\nif rank > 1:\n    torch.exp(bad)\n"
    )
    _, report = ranks(source)
    told = {one["op"]: (one["ranks"], one["count"]) for one in report["findings"]}
    assert told == {"relu": ([], 1), "exp": ([2, 3], 1)}
    assert (report["rank"], report["ranks"]) == (None, [0, 1, 2, 3])


def test_the_text_shows_both_ranks_calls_and_says_who_was_compared(project):
    project.write(START + "if rank == 0:\n    dist.all_reduce(x, group=dp)\nelse:\n    dist.barrier(group=dp)\n")
    text = project.check("train.py", "--world-size", "4", "--ranks", "all").stdout
    assert (
        "SW501 collective-divergence: rank 0 issues all_reduce(sum) of f32[4] {dp: V, tp: R} where rank 2 issues"
        in text
    )
    assert "^ rank 0: all_reduce(sum) of f32[4] {dp: V, tp: R}" in text
    assert "- rank 2: barrier" in text
    assert "ranks 0-3 compared" in text


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_other_forms_carry_both_places(project, form):
    project.write(START + "if rank == 0:\n    dist.all_reduce(x, group=dp)\nelse:\n    dist.barrier(group=dp)\n")
    text = project.check("train.py", "--world-size", "4", "--ranks", "all", "--format", form).stdout
    assert "SW501" in text
    assert "barrier" in text


def test_corners_of_a_mesh():
    assert corners(8, (2, 4)) == (0, 3, 4, 7)
    assert corners(64, (4, 4, 4)) == (0, 3, 12, 15, 48, 51, 60, 63)
    assert corners(8, None) == (0, 7)
    assert corners(1, None) == (0,)
    assert corners(8, (2, 2)) == (0, 1, 2, 3, 7)


def test_corners_are_those_of_the_mesh_that_the_program_makes(ranks):
    _, report = ranks("dist.barrier()\n", "--world-size", "8", "--ranks", "corners")
    assert report["ranks"] == [0, 3, 4, 7]
    _, report = ranks(
        "dist.barrier()\n", "--world-size", "8", "--ranks", "corners", start="import shardwise\n" + NO_MESH
    )
    assert report["ranks"] == [0, 7]


NO_MESH = "import torch.distributed as dist\ndist.init_process_group()\n"


def test_ranks_that_are_not_run_are_taken_to_follow(ranks):
    source = (
        "if rank == 1:\n    dist.barrier()\nflag = torch.tensor([1])\ndist.all_reduce(flag)\nassert flag.item() == 4\n"
    )
    found, report = ranks(source, "--world-size", "4", "--ranks", "0,2-3")
    assert (found, report["verdict"], report["ranks"]) == ([], "clean", [0, 2, 3])


USAGE = {
    ("--ranks", "0-9", "--world-size", "4"): "not in a world of 4: ranks go from 0 to 3",
    ("--ranks", "some"): "'some' is no rank: write all, corners or a list",
    ("--ranks", "3-1"): "no rank",
    ("--ranks", "0,"): "no rank",
    ("--ranks", "all", "--rank", "0"): "leave one of them out",
    ("--ranks", "all", "--world-size", "128"): "--ranks corners",
    ("--timeout", "3"): "add --ranks all",
}


@pytest.mark.parametrize("options", USAGE, ids=" ".join)
def test_wrong_usage_is_told(project, options):
    project.write("import torch\n")
    result = project.check("train.py", *options)
    assert result.exit_code == 2
    assert USAGE[options] in " ".join(result.stderr.replace("\n", " ").split())


def test_a_rank_that_dies_is_reported_with_those_that_wait_for_it(ranks):
    found, report = ranks("import signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()\n")
    assert found == [("SW503", 4)]
    assert "rank 1, which has died of SIGKILL" in report["findings"][0]["message"]
    assert report["stopped"]["text"] == "nothing, but died of SIGKILL on rank 1"


@pytest.mark.slow
def test_a_rank_that_goes_on_for_ever_is_given_up_and_named(ranks):
    source = "if rank == 2:\n    while True:\n        pass\ndist.barrier()\n"
    found, report = ranks(source, "--world-size", "4", "--ranks", "all", "--timeout", "8")
    assert found == [("SW503", 4)]
    assert "rank 2, which is still busy elsewhere after 8 s" in report["findings"][0]["message"]
    assert report["findings"][0]["operands"][1]["place"]["line"] in (START.count("\n") + 2, START.count("\n") + 3)


def test_what_a_failing_rank_printed_is_shown(project):
    project.write(START + "if rank == 2:\n    raise ValueError('bad shard')\ndist.barrier()\n")
    result = project.check("train.py", "--world-size", "4", "--ranks", "all")
    assert "rank 2 has raised ValueError: bad shard; it printed:" in result.stderr
    assert 'raise ValueError("bad shard")' in result.stderr.replace("'", '"')


def test_a_program_that_fails_alike_everywhere_is_no_finding(ranks):
    found, report = ranks("dist.barrier()\nraise ValueError('no data')\n")
    assert (found, report["exit_code"], report["stopped"]["text"]) == ([], 2, "ValueError: no data")


@pytest.mark.slow
def test_ctrl_c_reports_what_was_found_and_leaves_no_process(project):
    project.write(START + "torch.relu(spmd.assert_type(torch.ones(2), {'dp': P, 'tp': R}))\n"
                          "import time\nprint('ready', flush=True)\ntime.sleep(100)\n")  # fmt: skip
    command = [sys.executable, "-m", "shardwise", "check", "train.py", "--world-size", "2", "--ranks", "all"]
    command += ["--format", "json"]
    with subprocess.Popen(
        command, cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr.readline() == "ready\n"
            time.sleep(2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    report = json.loads(out)
    assert process.returncode == report["exit_code"] == 2, err
    assert "SW112" in {finding["code"] for finding in report["findings"]}
    assert report["stopped"]["reason"] == "interrupted"
    assert "Traceback" not in err


@pytest.mark.nightly
def test_all_ranks_are_run_where_one_needs_the_shapes_that_another_sends(tmp_path):
    script = tmp_path / "stages.py"
    script.write_text(
        """\
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
stage = PipelineStage(torch.nn.Linear(3, 3), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
schedule.step(torch.ones(4, 3)) if rank == 0 else schedule.step(target=torch.ones(4, 3))
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "shardwise", "check", str(script), "--mesh", "pp=2"], capture_output=True, text=True
    )
    assert "rank 0 receives objects from 1, so this is --ranks all" in done.stderr
    assert "ranks 0 and 1 compared" in done.stdout


@pytest.mark.parametrize("count", [2, 3], ids=["it holds", "it does not"])
def test_all_ranks_are_run_where_an_assertion_needs_what_the_others_have(tmp_path, count):
    script = tmp_path / "counts.py"
    script.write_text(
        f"""\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(3, 1))
model(torch.randn(8, 3)[dist.get_rank() :: dist.get_world_size()]).square().mean().backward()
total = torch.ones(())
dist.all_reduce(total)
assert total.item() == {count}
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "shardwise", "check", str(script), "--mesh", "dp=2"], capture_output=True, text=True
    )
    assert "an assertion does not hold without the values of other ranks, so this is --ranks all" in done.stderr
    assert done.returncode == (2 if count == 3 else 0), done.stdout
    assert ("AssertionError" in done.stdout) == (count == 3)
