"""Has one mistake of each family a fix after which the types are clean? Plain torch.distributed, typed inputs."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from shardwise.cli.runs.fix_search import Texts, search
from shardwise.cli.runs.run import CheckOptions, check_program
from shardwise.diagnostics.result import ExitCode, RunResult
from shardwise.host.overlay import overlay_of
from shardwise.host.program import Program

START = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
with spmd.set_current_mesh(mesh):
    model = nn.Linear(4, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R, "tp": I})
    x = spmd.assert_type(torch.randn(4, 4), {"dp": S(0), "tp": I})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward():
        spmd.reinterpret(model(x).square().sum(), "dp", src=V, dst=P).backward()

"""
SUM = "    for p in model.parameters():\n        dist.all_reduce(p.grad, group=dp)\n"
STEP = "    optimizer.step()\n"
CASES = {
    "one gradient is not summed": (
        "    backward()\n    dist.all_reduce(model.weight.grad, group=dp)\n" + STEP,
        "dist.all_reduce(model.bias.grad, group=",
    ),
    "the sum is over another group": (
        "    backward()\n" + SUM.replace("group=dp", "group=tp") + STEP,
        'dist.all_reduce(p.grad, group=mesh.get_group("dp"))',
    ),
    "nobody waits": (
        "    backward()\n" + SUM.replace("group=dp", "group=dp, async_op=True") + STEP,
        "dist.all_reduce(p.grad, group=dp)",
    ),
    "the wait comes too late": (
        "    backward()\n    handles = [dist.all_reduce(p.grad, group=dp, async_op=True) for p in model.parameters()]\n"
        "    optimizer.step()\n    for handle in handles:\n        handle.wait()\n",
        "for handle in handles:",
    ),
    "gradients are clipped before their sum": (
        "    backward()\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" + SUM + STEP,
        "for parameter in model.parameters():",
    ),
    "the sum is made in every micro-batch": (
        "    for _ in range(2):\n        spmd.reinterpret(model(x).square().sum(), 'dp', src=V, dst=P).backward()\n"
        + "".join(f"    {line}\n" for line in SUM.splitlines())
        + STEP,
        "    for p in model.parameters():",
    ),
    "the loss is replicate": (
        "    loss = spmd.all_reduce(model(x).square().sum(), 'dp', src=V, dst=R)\n    loss.backward()\n" + SUM + STEP,
        "dst=I)",
    ),
}


class Judge:
    """Checks in this process; the numbers are not asked for here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, texts: Texts) -> RunResult:
        with overlay_of(texts) as variables, patch.dict(os.environ, variables):
            return check_program(Program(path=str(self.path)), CheckOptions(world_size=4, plain_progress=False))

    def verify(self, texts: Texts) -> int:
        return ExitCode.CLEAN


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_has_a_fix_after_which_the_types_are_clean(case: str, tmp_path: Path) -> None:
    body, added = CASES[case]
    path = tmp_path / "program.py"
    path.write_text(START + body)
    judge = Judge(path)
    result = judge.check({})
    assert result.errors, "the program is wrong"
    tried = list(search(result, judge, lambda _: None))
    assert tried, [str(finding) for finding in result.errors]
    told = "\n".join(edit.diff for edit in tried[-1].edits)
    assert tried[-1].checked == ExitCode.CLEAN, told
    assert any(line.startswith("+") and added in line for line in told.splitlines()), told
