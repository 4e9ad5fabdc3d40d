"""Ranks that deal the samples, or the tasks, of a step out to each other and run backward on each of their own."""

from __future__ import annotations

import pytest

from shardwise.diagnostics.result import ExitCode

from .test_unannotated_scripts import verdict_on

BEGUN = """
    import torch, torch.distributed as dist
    from torch.nn.functional import linear, mse_loss

    dist.init_process_group("gloo")
    size, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    w = torch.randn(4, 8, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    data = torch.Generator().manual_seed(1)
    for _ in range(2):
        tasks, goals = torch.randn(4, 6, 8, generator=data), torch.randn(4, 6, 4, generator=data)
"""
DEALT_OUT = (
    BEGUN
    + """
        optimizer.zero_grad()
        own = MINE
        for i in own:
            loss = (torch.tanh(tasks[i] @ w.T) - goals[i]).square().mean()
            (loss / COUNT).backward()
        dist.all_reduce(w.grad)
        optimizer.step()
"""
)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("mine", "count", "code"),
    [
        ("range(rank, 4, size)", "4", ExitCode.CLEAN),
        ("torch.arange(4).chunk(size)[rank]", "(len(own) * size)", ExitCode.CLEAN),
        ("range(rank, 4, size)", "len(own)", ExitCode.FINDINGS),
        ("range(0, 4, size)", "4", ExitCode.FINDINGS),
        ("range(4 // size)", "4", ExitCode.FINDINGS),
    ],
    ids=["in turn", "in blocks", "a mean of their own", "of the first rank", "the first"],
)
def test_ranks_may_deal_out_the_samples_of_a_step_and_run_backward_on_each(tmp_path, mine, count, code):
    verdict = verdict_on(tmp_path, DEALT_OUT.replace("MINE", mine).replace("COUNT", count))
    assert verdict.exit_code is code, str(verdict)
    assert ("not compared" in str(verdict)) == (code is ExitCode.FINDINGS)


INNER_STEPS = (
    BEGUN.replace("SGD", "Adam")
    + """
        mine = range(rank, 4, size)
        total = 0
        for i in mine:
            (grad,) = torch.autograd.grad(mse_loss(linear(tasks[i, :3], w), goals[i, :3]), w, create_graph=True)
            total = total + mse_loss(linear(tasks[i, 3:], w - 0.1 * grad), goals[i, 3:])
        optimizer.zero_grad()
        (total / len(mine)).backward()
        dist.all_reduce(w.grad, op=OP)
        optimizer.step()
"""
)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("op", "code"), [("dist.ReduceOp.AVG", ExitCode.CLEAN), ("dist.ReduceOp.SUM", ExitCode.FINDINGS)]
)
def test_a_loss_that_an_inner_step_descends_is_not_that_of_the_training(tmp_path, op, code):
    verdict = verdict_on(tmp_path, INNER_STEPS.replace("OP", op))
    assert verdict.exit_code is code, str(verdict)


FIRST_ORDER = (
    BEGUN
    + """
        w.grad = torch.zeros_like(w)
        for i in range(rank, 4, size):
            (inner,) = torch.autograd.grad(mse_loss(linear(tasks[i, :3], w), goals[i, :3]), w)
            fast = (w - 0.1 * inner).detach().requires_grad_()
            (outer,) = torch.autograd.grad(mse_loss(linear(tasks[i, 3:], fast), goals[i, 3:]), fast)
            w.grad += outer / 4
        REDUCED
        optimizer.step()
"""
)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("reduced", "code"), [("dist.all_reduce(w.grad)", ExitCode.CLEAN), ("pass", ExitCode.FINDINGS)]
)
def test_what_an_inner_step_makes_is_no_parameter_beside_those_of_an_optimizer(tmp_path, reduced, code):
    verdict = verdict_on(tmp_path, FIRST_ORDER.replace("REDUCED", reduced))
    assert verdict.exit_code is code, str(verdict)
