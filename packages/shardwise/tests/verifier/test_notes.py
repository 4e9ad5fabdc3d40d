"""Does verify say what the two runs leave unsaid: what nothing trains, which convention a program has, what to do?"""

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

TRAIN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    class DividingSGD(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None if parameter.grad is None else parameter.grad / {divisor}
            return super().step()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    head = nn.Linear(8, 2)
    optimizer = DividingSGD([*model.parameters(), *head.parameters()], lr=0.1)
    for _ in range(2):
        model(torch.randn(8, 4).chunk(world)[rank]).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
"""


def verdict_on(folder: Path, text: str) -> Verdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return verify_subject(Script(Program(path=str(script))), {"dp": 2}, VerifyOptions(strict=False, timeout_s=60.0))


@pytest.mark.processes
def test_a_division_in_the_step_is_a_convention(tmp_path):
    verdict = verdict_on(tmp_path, TRAIN.replace("{divisor}", "world"))
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    convention, untrained = verdict.numbers.notes
    assert "8 gradients entered the optimizer 2 times as large as on one rank (2 is the size of dp)" in convention
    assert "2 parameters that an optimizer has (weight, bias) got no gradient in either run" in untrained


@pytest.mark.processes
def test_a_division_that_nobody_does_is_a_mistake(tmp_path):
    verdict = verdict_on(tmp_path, TRAIN.replace("{divisor}", "1"))
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert "2 times as much, the size of dp" in str(verdict)


@pytest.mark.one_in(3)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("rate", "said"),
    [
        pytest.param("0.1 * world", "lr 0.2, and on one rank with lr 0.1", id="follows the number of ranks"),
        pytest.param("torch.tensor(0.1 * world)", "lr 0.2, and on one rank with lr 0.1", id="a tensor"),
        pytest.param("0.1 * (1 + rank)", "lr 0.2 on rank 1, and on one rank with lr 0.1", id="differs by rank"),
    ],
)
def test_a_step_with_another_setting_than_on_one_rank_is_named(tmp_path, rate, said):
    text = TRAIN.replace("{divisor}", "world").replace("lr=0.1", f"lr={rate}")
    verdict = verdict_on(tmp_path, text)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    note = next(note for note in verdict.numbers.notes if note.startswith("step "))
    assert note.startswith("step 1 (")
    assert f"script.py:23:5) is taken with {said}:" in note


@pytest.mark.processes
def test_equal_settings_are_no_word(tmp_path):
    verdict = verdict_on(tmp_path, TRAIN.replace("{divisor}", "1"))
    assert verdict.exit_code is ExitCode.FINDINGS
    assert not any(note.startswith("step ") for note in verdict.numbers.notes)


MASKED_MEAN = """
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x, targets = torch.randn(12, 4), torch.randint(5, (12,))
        targets[:{ignored}] = -100
        x, targets = x.chunk(world)[rank], targets.chunk(world)[rank]
        {loss}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
OWN_MEAN = "loss = cross_entropy(model(x), targets)"
ALL_RANKS = """count = (targets != -100).sum().float()
        dist.all_reduce(count)
        loss = cross_entropy(model(x), targets, reduction="sum") * world / count"""


@pytest.mark.processes
def test_a_mean_over_a_ranks_own_targets_is_named(tmp_path):
    verdict = verdict_on(tmp_path, MASKED_MEAN.replace("{ignored}", "4").replace("{loss}", OWN_MEAN))
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    (note,) = verdict.numbers.notes
    assert note.startswith(
        "every rank divides its loss by a number of its own (2, 6): weighted by these, the losses are"
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("ignored", "loss"),
    [pytest.param("4", ALL_RANKS, id="what the note says to do"), pytest.param("0", OWN_MEAN, id="equal counts")],
)
def test_a_mean_over_all_targets_is_right(tmp_path, ignored, loss):
    verdict = verdict_on(tmp_path, MASKED_MEAN.replace("{ignored}", ignored).replace("{loss}", loss))
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert not verdict.numbers.notes


SUMMED_IN_THE_STEP = """
    class SummingSGD(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None{but}:
                        parameter.grad = parameter.grad.clone()
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= dist.get_world_size()
            return super().step()

    dist.init_process_group("gloo")"""


def summing(*, but: str = "") -> str:
    """The program with gradients that its optimizer averages in the step, ``but`` those of some parameters."""
    by_hand = """        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
"""
    assert by_hand in TRAIN
    source = TRAIN.replace(by_hand, "").replace("DividingSGD([", "SummingSGD([").replace("{divisor}", "1")
    return source.replace('\n    dist.init_process_group("gloo")', SUMMED_IN_THE_STEP.replace("{but}", but))


@pytest.mark.processes
def test_sums_that_the_step_issues_are_judged_by_what_they_make_of_parameters(tmp_path):
    verdict = verdict_on(tmp_path, summing())
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert "8 gradients entered the optimizer otherwise than on one rank: its step issues collectives" in str(verdict)


@pytest.mark.slow
@pytest.mark.processes
def test_a_sum_that_is_missing_in_the_step_is_a_mistake(tmp_path):
    verdict = verdict_on(tmp_path, summing(but=" and parameter.ndim > 1"))
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert "its step issues collectives" not in str(verdict)


@pytest.mark.slow
@pytest.mark.processes
def test_what_parts_the_runs_comes_with_what_to_do(tmp_path):
    verdict = verdict_on(
        tmp_path,
        TRAIN.replace("{divisor}", "world").replace("torch.randn(8, 4).chunk(world)[rank]", "torch.randn(8, 4) + rank"),
    )
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert "what to do: give every rank its share of one batch" in str(verdict)


@pytest.mark.processes
def test_global_types_say_why_the_numbers_disagree(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import torch
        import torch.distributed as dist
        from shardwise import R, S, assert_type

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        w = assert_type(torch.nn.Parameter(torch.randn(8, 4)), {"dp": R})
        x = assert_type(torch.randn(8, 8).chunk(dist.get_world_size())[dist.get_rank()].clone(), {"dp": S(0)})
        (((x @ w).sum(0) ** 2).sum()).backward()
        """,
    )
    assert verdict.numbers.cause is not None, str(verdict)
    assert verdict.numbers.cause.code == "SW112"
    assert "the cause, as global types see it:\nSW112" in str(verdict)


@pytest.mark.processes
def test_narrow_sums_get_a_note_and_a_verdict(tmp_path):
    verdict = verdict_on(
        tmp_path,
        """
        import torch
        import torch.distributed as dist
        from shardwise import I, R, S, assert_type, convert

        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        up = assert_type(torch.nn.Parameter(torch.randn(8, 4).bfloat16().chunk(world)[rank].clone()), {"dp": S(0)})
        x = assert_type(torch.randn(4, 4).bfloat16().requires_grad_(), {"dp": I})
        h = convert(x, "dp", src=I, dst=R) @ up.T
        h.backward(torch.ones_like(h))
        dist.all_reduce(torch.ones(2, dtype=torch.bfloat16))
        """,
    )
    assert verdict.failure is None, str(verdict)
    unasked, raw = verdict.numbers.notes
    assert "the backward of convert at" in unasked
    assert "sums in torch.bfloat16 unasked, and is refused outside of verify (SW209)" in unasked
    assert raw.startswith("all_reduce in bfloat16: ")


TEACHER = """
    import copy
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    class Distance(nn.Module):
        def forward(self, student, teacher):
            return (student - teacher).square().mean()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.1)
    for x in torch.randn(3, 8, 4):
        x = x.chunk(world)[rank]
        with torch.no_grad():
            wanted = teacher(x)
        Distance()(student(x * 2), wanted).backward()
        for parameter in student.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        optimizer.zero_grad()
        for slow, fast in zip(teacher.parameters(), student.parameters()):
            slow.lerp_(fast.detach(), {weight})
"""


@pytest.mark.slow
@pytest.mark.processes
def test_a_copy_that_follows_the_model_is_compared_too(tmp_path):
    verdict = verdict_on(tmp_path, TEACHER.replace("{weight}", "0.3"))
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    wrong = verdict_on(tmp_path, TEACHER.replace("{weight}", "0.3 / (1 + rank)"))
    assert wrong.exit_code is ExitCode.FINDINGS, str(wrong)
    assert {"0.weight (2)", "2.bias (2)"} <= {one.key.name for one in wrong.numbers.disagreements}


OWNER = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
for step in range(2):
    model(torch.randn(8, 4).chunk(world)[rank]).square().mean().backward()
    for at, parameter in enumerate(model.parameters()):
        owner = at % world
        dist.reduce(parameter.grad, dst=owner)
        with torch.no_grad():
            if rank == owner:
                parameter.sub_(parameter.grad, alpha=0.1 / {divisor})
        dist.broadcast(parameter.data, src=owner)
    if step == 0:
        model.zero_grad()
"""


@pytest.mark.processes
def test_gradients_that_only_their_owner_needs_are_judged_by_the_parameters(tmp_path):
    verdict = verdict_on(tmp_path, OWNER.replace("{divisor}", "world"))
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert "4 gradients that no optimizer of torch has taken ended otherwise than on one rank" in str(verdict)


@pytest.mark.slow
@pytest.mark.processes
def test_where_the_owner_steps_too_far_the_parameters_tell(tmp_path):
    verdict = verdict_on(tmp_path, OWNER.replace("{divisor}", "1"))
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
