"""Calls of a module that the ranks share out, each with other weights: which is which on one rank, nobody can tell."""

from __future__ import annotations

import textwrap

import pytest

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject

EVOLUTION = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    policy, member, x = nn.Linear(4, 1), nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    scores = torch.zeros(4)
    noise = [torch.randn(1, 4, generator=torch.Generator().manual_seed(m)) for m in range(4)]
    for m in range(rank, 4, world):
        with torch.no_grad():
            member.weight.copy_(policy.weight + noise[m])
            scores[m] = member(x).square().mean()
    dist.all_reduce(scores)
    policy.weight.grad = sum(score * way for score, way in zip(scores, noise))
    optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize("summed", [True, False], ids=["right", "not summed"])
def test_members_of_a_population_are_told_by_what_comes_of_them(tmp_path, summed):
    text = textwrap.dedent(EVOLUTION)
    (tmp_path / "script.py").write_text(text if summed else text.replace("dist.all_reduce(scores)\n", ""))
    options = VerifyOptions(strict=False, timeout_s=60.0)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is (ExitCode.CLEAN if summed else ExitCode.FINDINGS), str(verdict)
    if not summed:
        assert str(verdict).startswith("wrong numbers: gradient of weight in step 1")
