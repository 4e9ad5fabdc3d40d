"""Numbers that a program reads of sums over all ranks: which of them are wrong, and which are rounding?"""

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

CANCELLING = """
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, w, way = torch.randn(64, 32), torch.randn(32), torch.randn(32)
    mine = x[rank::world]
    plus = (mine @ (w + 2e-3 * way)).tanh().square().mean()
    minus = (mine @ (w - 2e-3 * way)).tanh().square().mean()
    slope = (plus - minus) / 4e-3
    dist.all_reduce(slope)
    print(slope.item() / world)
"""
"""A derivative by differences, without gradients: what is left of two numbers near each other is mostly rounding."""


def verdict_on(folder: Path, text: str) -> Verdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    return verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)


@pytest.mark.processes
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_number_that_is_left_of_two_that_cancel_may_be_off_by_their_roundings(tmp_path, seed):
    verdict = verdict_on(tmp_path, CANCELLING.replace("manual_seed(0)", f"manual_seed({seed})"))
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert verdict.numbers.equal == 1


@pytest.mark.processes
def test_a_sum_that_is_wrong_by_more_than_roundings_is_a_finding_on_the_scale_of_one_rank(tmp_path):
    wrong = CANCELLING.replace("mine = x[rank::world]", "mine = x[: 64 // world]")
    verdict = verdict_on(tmp_path, wrong)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert verdict.numbers.disagreements[0].key.kind == "read"
