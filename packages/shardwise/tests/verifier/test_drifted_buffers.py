"""A buffer that follows each rank's own data is asked about; one that ranks make equal, add up or fill is not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict

BALANCED = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(4, 4)
            self.register_buffer("kept", torch.zeros(4))

        def forward(self, x):
            scores = self.gate(x).sigmoid()
            with torch.no_grad():
                load = torch.bincount(scores.argmax(-1), minlength=4).float()
                {update}
            return scores.sum(-1)

    model = DistributedDataParallel(Router(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        data = torch.randn(16, 4).chunk(world)[rank]
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
WRONG = {
    "signs of a rank's own load": "self.kept += 0.05 * torch.sign(load.mean() - load)",
    "a spread of a rank's own rows": "self.kept = 0.9 * self.kept + scores.std(0)",
}
RIGHT = {
    "signs of the load of all": "dist.all_reduce(load); self.kept += 0.05 * torch.sign(load.mean() - load)",
    "counts": "self.kept += load",
    "a moving mean": "self.kept.mul_(0.9).add_(scores.mean(0), alpha=0.1)",
    "the largest": "torch.maximum(self.kept, scores.amax(0), out=self.kept)",
    "nothing": "pass",
}


def verdict_on(folder: Path, update: str) -> Verdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(BALANCED.replace("{update}", update)))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    return verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)


@pytest.mark.processes
@pytest.mark.parametrize("update", WRONG.values(), ids=WRONG.keys())
def test_what_drifts_apart_is_asked_about(tmp_path: Path, update: str) -> None:
    verdict = verdict_on(tmp_path, update)
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    (question,) = verdict.numbers.questions
    assert question.startswith("1 buffer (Router.kept) began with the same values on all ranks")


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.parametrize("update", RIGHT.values(), ids=RIGHT.keys())
def test_what_ranks_have_together_is_no_question(tmp_path: Path, update: str) -> None:
    verdict = verdict_on(tmp_path, update)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
