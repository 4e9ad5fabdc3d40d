"""A program with one mistake, and who judges what fixes make of it."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from shardwise.cli.runs.fix_search import Texts, Verified
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


class Judge:
    """Checks in this process; the numbers are not asked for here."""

    def __init__(self, path: Path, *, local: bool = True) -> None:
        self.path, self.local = path, local

    def check(self, texts: Texts) -> RunResult:
        with overlay_of(texts) as variables, patch.dict(os.environ, variables):
            options = CheckOptions(world_size=4, local=self.local, plain_progress=False)
            return check_program(Program(path=str(self.path)), options)

    def verify(self, texts: Texts) -> Verified:
        return Verified(ExitCode.CLEAN)
