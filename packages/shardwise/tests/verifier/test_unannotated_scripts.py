"""Scripts that meet what ``shardwise verify`` puts in the place of a job: its devices, its groups, its crashes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.interop.running.recording import Key, Record
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.layouts.micro_batches import MicroBatches
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.text import Verdict


def verdict_on(folder: Path, text: str) -> Verdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    return verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)


@pytest.mark.processes
def test_a_crash_ends_the_run_though_another_rank_waits_for_ever(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import time
        import torch.distributed as dist

        dist.init_process_group("gloo")
        if dist.get_world_size() > 1:
            if dist.get_rank() == 1:
                raise RuntimeError("out of luck")
            time.sleep(1000)
        """,
    )
    assert verdict.failure is not None
    assert verdict.failure.text == "rank 1 of 2 raised RuntimeError: out of luck; rank 0 waited for the others"


@pytest.mark.processes
def test_backward_of_a_function_may_name_a_device(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import torch
        import torch.distributed as dist

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * torch.full((1,), 2.0, device="cuda")

            @staticmethod
            def backward(ctx, grad):
                return grad * torch.full((1,), 2.0, device="cuda").type("torch.cuda.FloatTensor")

        dist.init_process_group("nccl")
        torch.cuda.random.manual_seed_all(0)
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).cuda()
        Double.apply(model(torch.ones(4, 3).cuda())).sum().backward()
        """,
    )
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


@pytest.mark.processes
@pytest.mark.parametrize(
    "join", ['dist.init_process_group("gloo")', 'init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))']
)
def test_a_process_group_exists_when_the_script_has_made_it(tmp_path, join):
    verdict = verdict_on(
        tmp_path,
        f"""
        import os
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        before = dist.is_initialized()
        {join}
        if before or not dist.is_initialized():
            raise RuntimeError(f"initialized before: {{before}}, after: {{dist.is_initialized()}}")
        torch.manual_seed(0)
        torch.nn.Linear(3, 2)(torch.ones(4, 3)).sum().backward()
        """,
    )
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


def run_of(*steps: list[list[float]]) -> dict[Key, Record]:
    """Micro-batches of each step, and behind them the gradient with which it ends."""
    entries: dict[Key, Record] = {}
    micro = 0
    for step, batches in enumerate(steps, 1):
        for batch in batches:
            micro += 1
            key = Key("input", "0 of Linear", None, micro)
            entries[key] = Record(key, UNTYPED, "", torch.tensor([batch]).T)
        key = Key("gradient", "weight", None, step)
        entries[key] = Record(key, UNTYPED, "", torch.ones(1))
    return entries


def batches_of(ranks: list[dict[Key, Record]], alone: dict[Key, Record]) -> MicroBatches:
    runs = [*ranks, alone]
    return MicroBatches(ranks, alone, [[at for at, key in enumerate(run) if key.kind == "gradient"] for run in runs])


FIRST, THIRD = (Key("input", "0 of Linear", None, nth) for nth in (1, 3))


def test_micro_batches_may_be_composed_otherwise_within_a_step():
    alone = run_of([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
    ranks = [run_of([[1.0], [2.0]], [[5.0], [6.0]]), run_of([[3.0], [4.0]], [[7.0], [8.0]])]
    batches = batches_of(ranks, alone)
    assert batches.explain(FIRST)
    assert batches.explain(THIRD)
    assert batches.regrouped


def test_samples_of_another_step_are_other_samples():
    alone = run_of([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
    ranks = [run_of([[1.0], [2.0]], [[3.0], [4.0]]), run_of([[5.0], [6.0]], [[7.0], [8.0]])]
    batches = batches_of(ranks, alone)
    assert not batches.explain(FIRST)
    assert not batches.explain(THIRD)
    assert not batches.regrouped


def test_a_sample_that_two_ranks_have_is_not_the_batch():
    alone = run_of([[1.0, 2.0], [3.0, 4.0]])
    assert not batches_of([run_of([[1.0], [2.0]]), run_of([[2.0], [3.0]])], alone).explain(FIRST)


def test_a_pipeline_runs_its_first_micro_batch_once_more_beforehand():
    alone = run_of([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])
    assert batches_of([run_of([[1.0], [1.0], [2.0]]), run_of([[3.0], [3.0], [4.0]])], alone).explain(FIRST)
    assert not batches_of([run_of([[1.0], [1.0], [2.0]]), run_of([[2.0], [2.0], [4.0]])], alone).explain(FIRST)


KEYWORDS = """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 4)

        def forward(self, features=None, batch=None):
            return self.inner(batch["features"] if features is None else features)

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Classifier())
    rank = dist.get_rank()
    features = torch.arange(32.0).view(4, 8)
    model(CALL).square().mean().backward()
"""


@pytest.mark.processes
@pytest.mark.parametrize("call", ["features=x", "batch={'features': x}"], ids=["keyword", "dict"])
@pytest.mark.parametrize(
    ("share", "parts"),
    [("features.chunk(dist.get_world_size())[rank]", False), ("features + rank", True)],
    ids=["its share", "data of its own"],
)
def test_data_given_by_keyword_or_in_a_dict_are_inputs_too(tmp_path, call, share, parts):
    verdict = verdict_on(tmp_path, KEYWORDS.replace("CALL", call.replace("x", share)))
    assert (verdict.numbers.parting is not None, verdict.numbers.disagreements) == (parts, ())


@pytest.mark.processes
def test_a_rank_that_steps_more_often_than_one_rank_does_is_no_wrong_number(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import torch
        import torch.distributed as dist
        from torch.distributed.algorithms.join import Join
        from torch.nn.parallel import DistributedDataParallel as DDP

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        ddp = DDP(torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with Join([ddp]):
            for step in range(2 + dist.get_rank()):
                optimizer.zero_grad()
                ddp(torch.full((4, 8), float(step))).sum().backward()
                optimizer.step()
        """,
    )
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert verdict.numbers.replicas == 4, "what Join has made equal again is compared between ranks"


@pytest.mark.processes
def test_batch_norm_over_each_ranks_own_rows_is_named_as_such(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        ddp = DDP(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        x = torch.randn(16, 4).chunk(dist.get_world_size())[dist.get_rank()]
        ddp(x).square().mean().backward()
        optimizer.step()
        """)
    )
    options = VerifyOptions(strict=False, timeout_s=60.0)
    verdict = verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)
    assert verdict.exit_code is ExitCode.FINDINGS
    assert "first module: output of 1 (BatchNorm1d)" in str(verdict)
    assert "help: in training BatchNorm1d takes the mean and variance of each rank's own rows" in str(verdict)
