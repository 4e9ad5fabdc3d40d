"""Data that every rank cuts alike is found by a run in which each rank has its own piece, whatever wraps the model."""

from __future__ import annotations

import textwrap

import pytest

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.runs.own_pieces import RECUT

NOISED = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    x, noise = torch.randn(8, 4), torch.randn(8, 4)
    {wrapped}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, noise = x.chunk(world)[rank], noise.chunk(world)[0]
    model(x + 0.5 * noise).square().mean().backward()
    optimizer.step()
"""
WRAPPERS = ["model = DistributedDataParallel(model)", "fully_shard(model)"]


@pytest.mark.slow_but_one_in(2)
@pytest.mark.processes
@pytest.mark.parametrize("wrapped", WRAPPERS, ids=["ddp", "fsdp2"])
def test_noise_that_every_rank_cuts_alike_is_found_at_its_line(tmp_path, wrapped):
    (tmp_path / "script.py").write_text(textwrap.dedent(NOISED).replace("{wrapped}", wrapped))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert "0.5 * noise" in str(verdict)
    assert RECUT in str(verdict)
