"""`shardwise check --schedule FILE`: the collectives of one rank or of all, as lines of JSON in a fixed format."""

from __future__ import annotations

import json

import pytest

from tracewise.read.plan import read_plan

PROGRAM = """\
import torch
import torch.distributed as dist
import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group()
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.ones(4, 2), {"dp": V, "tp": P})
    y = spmd.all_reduce(x, "tp", src=P, dst=R)
    dist.broadcast(torch.ones(8, dtype=torch.int64), 0)
    dist.all_reduce(torch.ones(3))
"""
ALL = ("--world-size", "4", "--ranks", "all")


@pytest.fixture
def schedule(project):
    """Exit status and the lines of the schedule of a program."""

    def run(source, *options):
        project.write(source)
        result = project.check("train.py", *options, "--schedule", "plan.jsonl")
        path = project.folder / "plan.jsonl"
        return result, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return run


def test_one_rank_alone_is_written_in_the_format(schedule, project):
    result, lines = schedule(PROGRAM, "--world-size", "4", "--rank", "3")
    assert result.exit_code == 0, result.output
    train = str(project.folder / "train.py")
    assert lines == [
        {"v": 1, "kind": "collective", "rank": 3, "group": "tp", "ranks": [2, 3], "seq": 1, "op": "all_reduce",
         "reduce": "sum", "dtype": "float32", "shape": [4, 2], "file": train, "line": 10, "type": "P->R"},
        {"v": 1, "kind": "collective", "rank": 3, "group": "", "ranks": [0, 1, 2, 3], "seq": 1, "op": "broadcast",
         "reduce": None, "dtype": "int64", "shape": [8], "file": train, "line": 11, "type": None},
        {"v": 1, "kind": "collective", "rank": 3, "group": "", "ranks": [0, 1, 2, 3], "seq": 2, "op": "all_reduce",
         "reduce": "sum", "dtype": "float32", "shape": [3], "file": train, "line": 12, "type": None},
    ]  # fmt: skip


@pytest.mark.processes
def test_all_ranks_are_written_each_with_its_own_groups(schedule):
    result, lines = schedule(PROGRAM, *ALL)
    assert result.exit_code == 0, result.output
    assert [(line["rank"], line["ranks"]) for line in lines if line["group"] == "tp"] == [
        (0, [0, 1]), (1, [0, 1]), (2, [2, 3]), (3, [2, 3]),
    ]  # fmt: skip
    assert [line["seq"] for line in lines if line["rank"] == 2 and not line["group"]] == [1, 2]


@pytest.mark.processes
def test_findings_are_written_with_their_lines(schedule):
    source = PROGRAM + "    if dist.get_rank() == 1:\n        dist.all_reduce(torch.ones(1))\n"
    result, lines = schedule(source, *ALL)
    assert result.exit_code == 1
    (finding,) = [line for line in lines if line["kind"] == "finding"]
    assert (finding["code"], finding["line"], finding["severity"]) == ("SW503", 14, "error")
    assert len([line for line in lines if line["kind"] == "collective"]) == 13


def test_the_gradient_of_a_collective_has_its_own_type(schedule):
    source = """\
import torch
import torch.distributed as dist
import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group()
mesh = dist.init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
with spmd.set_current_mesh(mesh):
    x = spmd.assert_type(torch.ones(4, requires_grad=True), {"tp": S(0)})
    y = spmd.all_gather(x, "tp", src=S(0), dst=R)
    spmd.convert(y.sum(), "tp", src=R, dst=P).backward()
"""
    _, lines = schedule(source, "--world-size", "4")
    assert [(line["op"], line["type"]) for line in lines] == [("all_gather", "S->R"), ("reduce_scatter", "P->S")]


def test_a_file_that_cannot_be_written_is_wrong_usage(project):
    project.write(PROGRAM)
    result = project.check("train.py", "--schedule", "missing/plan.jsonl")
    assert result.exit_code == 2
    assert "--schedule missing/plan.jsonl: cannot be written" in result.output


def test_tracewise_reads_what_is_written(schedule, project):
    _, lines = schedule(PROGRAM, "--world-size", "4")
    plan = read_plan([project.folder / "plan.jsonl"])
    assert [(step.op, step.ranks, step.seq, step.shape, step.type) for step in plan.of_rank(0)] == [
        ("all_reduce", (0, 1), 1, (4, 2), "P->R"),
        ("broadcast", (0, 1, 2, 3), 1, (8,), ""),
        ("all_reduce", (0, 1, 2, 3), 2, (3,), ""),
    ]
    assert len(plan.steps) == len(lines)
