"""What is equal by its type and computed differently on the ranks, as a user runs them; right programs pass."""

from __future__ import annotations

import json

import pytest

from .test_ranks import START as COMMON

pytestmark = pytest.mark.processes

START = (
    COMMON
    + "seed, at = 1234, mesh.get_local_rank('tp').__index__()\n"
    + "w = spmd.assert_type(torch.ones(4), {'dp': R, 'tp': R})\n"
)


@pytest.fixture
def told(project):
    """Codes and lines after ``START`` of the errors and warnings of four ranks, and the whole report."""

    def run(source, *options):
        project.write(START + source)
        words = ("--world-size", "4", "--ranks", "all", "--format", "json", *options)
        report = json.loads(project.check("train.py", *words).stdout)
        lines = START.count("\n")
        return [(one["code"], one["place"]["line"] - lines) for one in report["findings"]], report

    return run


DTENSOR = """\
from torch.distributed.tensor import DTensor, Replicate
def from_local(x):
    return DTensor.from_local(x, mesh["tp"], [Replicate()], run_check=False)
"""
TRAINED = """
p, q = (spmd.assert_type(nn.Parameter(torch.ones(4)), {"dp": R, "tp": R}) for _ in range(2))
p.grad, q.grad = (spmd.assert_type(torch.ones(4), {"dp": R, "tp": R}) for _ in range(2))
opt = torch.optim.SGD([p, q], lr=0.1)
"""
WRONG = {
    "a number by rank": ("SW507", "y = x * (at + 1)\nz = y + 1\n", 1),
    "a number by rank, in place": ("SW507", "y = x.clone()\ny.mul_(at + 1)\nz = y + 1\n", 2),
    "a slice by rank": ("SW507", "y = x[2 * at : 2 * at + 2]\nz = y.sum() * 2\n", 1),
    "a chunk by rank": ("SW507", "y = x.chunk(2)[at]\nz = y * 2\n", 2),
    "another operator": ("SW507", "y = torch.relu(x) if at else torch.exp(x)\nz = y + 1\n", 1),
    "another operator in a branch": (
        "SW507", "if at:\n    y = torch.relu(x)\nelse:\n    y = torch.exp(x)\nz = y + 1\n", 5,
    ),
    "another operand": ("SW507", "both = [x * 2, x * 3]\nz = both[at] + 1\n", 2),
    "a temperature by rank in a loss": (
        "SW507",
        "p = spmd.assert_type(torch.ones(4), {'dp': I, 'tp': I}).requires_grad_()\n"
        "loss = (p * (at + 1)).sum()\nloss.backward()\n",
        2,
    ),
    "a mask drawn by rank and declared synchronised": (
        "SW509",
        "torch.manual_seed(seed + at)\nwith spmd.synchronised_rng('tp'):\n    y = torch.dropout(x, 0.5, True)\n"
        "z = y + 1\n",
        3,
    ),
    "noise of the shape of a tensor, drawn by rank": (
        "SW509",
        "torch.manual_seed(seed + at)\nwith spmd.synchronised_rng('tp'):\n    y = torch.randn_like(x)\nz = y + 1\n",
        3,
    ),
    "noise of the shape of a tensor, drawn by rank and not declared": (
        "SW121", "torch.manual_seed(seed + at)\ny = torch.randn_like(x)\nz = x + y\n", 2,
    ),
    "weights seeded by rank": (
        "SW508", "torch.manual_seed(seed + rank)\nm = spmd.assert_type(torch.randn(4), {'dp': V, 'tp': R})\n", 2,
    ),
    "a parameter made by rank": (
        "SW508",
        "torch.manual_seed(at)\nlayer = nn.Linear(4, 4)\nspmd.assert_type(layer.weight, {'dp': I, 'tp': I})\n",
        3,
    ),
    "data by rank that a DTensor has on all ranks": (
        "SW508", DTENSOR + "d = from_local(torch.ones(4, 4)[at:] * at)\n", 3,
    ),
    "data by rank, after a collective": (
        "SW508", DTENSOR + "dist.all_reduce(torch.ones(100_000))\nd = from_local(torch.randn(8).chunk(2)[at])\n", 3,
    ),
    "replicas of shards seeded by rank": (
        "SW508",
        "from torch.distributed.fsdp import fully_shard\ntorch.manual_seed(rank)\n"
        "model = fully_shard(nn.Linear(4, 4), mesh=mesh)\n",
        3,
    ),
    "replicas seeded by rank that are not synchronised": (
        "SW508",
        "torch.manual_seed(rank)\n"
        "model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4), process_group=dp, init_sync=False)\n",
        2,
    ),
    "a parameter that one rank alone changes": (
        "SW507", TRAINED + "if at:\n    with torch.no_grad():\n        p.mul_(2)\nopt.step()\nopt.step()\n", 9,
    ),
    "a gradient scaled by rank": ("SW507", TRAINED + "with torch.no_grad():\n    p.grad.mul_(at + 1)\nopt.step()\n", 6),
    "a table by rank": ("SW508", "m = spmd.assert_type(torch.arange(4) + at, {'dp': V, 'tp': R})\n", 1),
    "a dim of a typed collective": (
        "SW505",
        "m = spmd.assert_type(torch.ones(2, 2), {'dp': V, 'tp': V})\n"
        "whole = spmd.all_gather(m, 'tp', src=S(at), dst=R)\n",
        2,
    ),
}  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_computed_differently_is_told_once_where_it_is(told, name):
    code, source, line = WRONG[name]
    found, report = told(source)
    assert found == [(code, line)], report
    assert report["exit_code"] == 1


RIGHT = {
    "varying values may differ": "y = spmd.assert_type(torch.ones(4) * at, {'dp': V, 'tp': V}) * at\nz = y[at] + 1\n",
    "a shard that a rank takes of its own": (
        "y = spmd.reinterpret(x[2 * at : 2 * at + 2], 'tp', src=R, dst=V, expert_mode=True)\nz = y * 2\n"
    ),
    "a slice by rank that meets a shard": (
        "m = spmd.assert_type(torch.ones(2), {'dp': V, 'tp': V})\nz = x[2 * at : 2 * at + 2] * m\n"
    ),
    "data that give a shape or a dtype alone": (
        "m = spmd.assert_type(torch.ones(2, 4), {'dp': V, 'tp': V})\nown = m * at\n"
        "z = x.type_as(own) + 1\nz = (x + torch.zeros_like(own)) * 2\nz = x.expand_as(own) + 1\n"
    ),
    "a number that is equal over the axis": "y = x * (mesh.get_local_rank('dp') + 1)\nz = y + 1\n",
    "logging on one rank": "def norm(y):\n    return (y * y).sum()\nif rank == 0:\n    norm(x * 3)\nz = norm(x * 2)\n",
    "the same call from two branches": "if at:\n    y = torch.relu(x)\nelse:\n    y = torch.relu(x)\nz = y + 1\n",
    "noise of the shape of a tensor, of one seed": "torch.manual_seed(seed)\ny = torch.randn_like(x)\nz = x + y\n",
    "data by the other rank that a DTensor has on all ranks": (
        DTENSOR + "d = from_local(torch.randn(8).chunk(2)[mesh.get_local_rank('dp')])\n"
    ),
    "parameters that one rank puts away and back": (
        TRAINED
        + "opt.step()\nif at:\n    with torch.no_grad():\n        saved = p.detach().clone()\n        p.zero_()\n"
        "        p.copy_(saved)\nopt.step()\n"
    ),
    "a gradient each rank for all": (
        TRAINED + "own = torch.optim.SGD([p, q][at:], lr=0.1)\n[p, q][at].grad.mul_(3)\nown.step()\n"
        "dist.broadcast(p.data, rank - at, group=tp)\n"
    ),
    "shards seeded by rank": (
        "from torch.distributed.fsdp import fully_shard\ntorch.manual_seed(at)\n"
        "model = fully_shard(nn.Linear(4, 4), mesh=mesh)\n"
    ),
    "replicas of one seed that are not synchronised": (
        "torch.manual_seed(at)\n"
        "model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4), process_group=dp, init_sync=False)\n"
    ),
    "a sum that a DTensor has on all ranks": (
        DTENSOR + "m = torch.ones(4) * rank\ndist.all_reduce(m, group=tp)\nd = from_local(m * 2)\n"
    ),
    "a large sum that a DTensor has on all ranks": (
        DTENSOR + "m = torch.ones(100_000) * rank\ndist.all_reduce(m, group=tp)\nd = from_local(m * 2)\n"
    ),
    "seeding by hand": (
        "torch.manual_seed(seed)\nmine = torch.Generator().manual_seed(seed + 2718 + at)\n"
        "shard = spmd.assert_type(torch.randn(4, generator=mine), {'dp': V, 'tp': V})\n"
        "y = torch.dropout(x, 0.5, True)\nz = y + 1\n"
    ),
    "seeding by hand, with the state put back": (
        "torch.manual_seed(seed)\ncommon = torch.get_rng_state()\ntorch.manual_seed(seed + 2718 + at)\n"
        "shard = spmd.assert_type(torch.randn(4), {'dp': V, 'tp': V})\nlayer = nn.Linear(4, 4)\n"
        "torch.set_rng_state(common)\ny = torch.dropout(x, 0.5, True)\nz = y + 1\n"
    ),
    "memory that is written later": "m = spmd.assert_type(torch.empty(4), {'dp': R, 'tp': R})\nm.fill_(2)\nz = m + 1\n",
    "what was broadcast first": (
        "torch.manual_seed(rank)\nm = torch.randn(4)\ndist.broadcast(m, src=0)\n"
        "m = spmd.assert_type(m, {'dp': R, 'tp': R})\nz = m + 1\n"
    ),
    "what was broadcast first, and is large": (
        "torch.manual_seed(rank)\nm = torch.randn(100_000)\ndist.broadcast(m, src=0)\n"
        "m = spmd.assert_type(m, {'dp': R, 'tp': R})\nz = m + 1\n"
    ),
    "what DistributedDataParallel broadcasts": (
        "torch.manual_seed(mesh.get_local_rank('dp'))\nnet = nn.Linear(4, 4)\n"
        "nn.parallel.DistributedDataParallel(net, process_group=mesh.get_group('dp'))\n"
        "spmd.assert_type(list(net.parameters()), {'dp': R, 'tp': R})\nz = net.weight + 1\n"
    ),
    "a number read of what was not summed here": (
        "torch.manual_seed(rank)\nm = spmd.assert_type(torch.randn(100_000), {'dp': V, 'tp': V})\n"
        "total = spmd.all_reduce(m, 'tp', src=V, dst=R)\nz = x * total.sum().item()\nz = z + 1\n"
    ),
    "a number of what was not summed here, logged by one rank alone": (
        "m = spmd.assert_type(torch.ones(100_000) * rank, {'dp': V, 'tp': V})\n"
        "total = spmd.all_reduce(m, 'tp', src=V, dst=R)\nif rank == 0:\n    total.sum().item()\n"
        "z = x * 2.5\nz = z + 1\n"
    ),
    "a sum, then its mean": (
        "m = spmd.assert_type(torch.ones(4) * rank, {'dp': V, 'tp': V})\n"
        "z = spmd.all_reduce(m, 'tp', src=V, dst=R) / 2 + x\n"
    ),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_computed_alike_passes(told, name):
    found, report = told(RIGHT[name])
    assert (found, report["stopped"]) == ([], None), report


def test_a_mask_drawn_by_rank_is_told_once(told):
    found, _ = told("torch.manual_seed(seed + at)\ny = torch.dropout(x, 0.5, True)\nz = y + 1\n")
    assert found == [("SW121", 2)]


def test_one_rank_alone_does_not_know(project):
    project.write(START + "y = x * (at + 1)\nz = y + 1\n")
    assert project.check("train.py", "--world-size", "4").exit_code == 0


def test_the_text_says_what_differs_and_what_to_do(project):
    project.write(START + "y = x * (at + 1)\nz = y + 1\n")
    text = project.check("train.py", "--world-size", "4", "--ranks", "all").stdout
    assert "mul takes 1 on rank 0 and 2 on rank 1" in text
    assert "equal over tp by its type" in text
    assert "say that it differs where it is meant to: reinterpret(x, axis, src=R, dst=V, expert_mode=True)" in text


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["--fake", "--device=meta"])
def test_expressions_are_compared_without_values(told, kind):
    assert told("y = x * (at + 1)\nz = y + 1\n", kind)[0] == [("SW507", 1)]
    assert told("m = spmd.assert_type(torch.arange(4) + at, {'dp': V, 'tp': R})\n", kind)[0] == []


def test_what_a_rank_has_found_is_told_though_it_dies(told):
    source = (
        "import signal\nbad = spmd.assert_type(torch.ones(2), {'dp': P, 'tp': R})\nif rank == 1:\n"
        "    torch.relu(bad)\n    os.kill(os.getpid(), signal.SIGKILL)\nelse:\n    torch.exp(bad)\n"
    )
    found, report = told(source)
    assert set(found) == {("SW112", 4), ("SW112", 7)}
    assert [one["ranks"] for one in report["findings"]] in ([[0, 2, 3], [1]], [[1], [0, 2, 3]])
    assert report["stopped"]["text"] == "nothing, but died of SIGKILL on rank 1"
