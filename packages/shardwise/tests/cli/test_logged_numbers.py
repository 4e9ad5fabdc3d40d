"""Numbers that each rank reads of its own share: what is only logged leaves the verdict alone, and what is trained by
them is judged, or is not said to be right.
"""

from __future__ import annotations

import textwrap

import pytest

from .test_observe import reported

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("kept")]

BEGUN = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
PROGRAM = (
    BEGUN
    + """
x, y = torch.randn(8, 6).chunk(world)[rank], torch.randint(0, 3, (8,)).chunk(world)[rank]
mask = (torch.rand(8) > 0.4).float().chunk(world)[rank]
per = F.cross_entropy(model(x), y, reduction="none") * mask
"""
)
STEP = """
loss.backward()
optimizer.step()
"""
LOGGED = """
    loss = F.cross_entropy(model(x), y)
    print(loss.item(), per.sum().item() / mask.sum().item())
    packed = torch.stack([loss.detach(), (per > 1).sum(), torch.tensor(float(len(y)))])
    dist.all_reduce(packed)
    meter = 0.0
    meter += per.sum().item()
    total = torch.tensor([meter, mask.sum().item()])
    dist.all_reduce(total)
    worst = per.detach().sum()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    own, everyone = per.detach().sum(), [torch.zeros(()) for _ in range(world)]
    dist.all_gather(everyone, own)
    shown = torch.stack([loss.detach(), model.module.weight.detach().norm()])
    dist.all_reduce(shown)
"""
SUMMED = """
    sums = torch.tensor([per.detach().sum().item(), mask.sum().item()])
    dist.all_reduce(sums)
    loss = per.sum() {}/ sums[1]
"""
COUNTED = """
    count = torch.tensor(0.0)
    for part in mask.chunk(2):
        count += part.sum()
    dist.all_reduce(count, op=dist.ReduceOp.{})
    loss = per.sum() {}/ count
"""
PACKED = """
    sums = torch.stack([per.detach().mean(), mask.sum()])
    dist.all_reduce(sums)
    loss = per.sum() {}/ sums[1]
"""


ALIASED = """
    loss = F.cross_entropy(model(x), y, reduction="{}")
    logged = loss.{}
    dist.all_reduce(logged)
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("lines", "verdict", "said"),
    [
        (ALIASED.format("mean", "detach()"), "clean", ""),
        (ALIASED.format("mean", "data"), "clean", ""),
        (ALIASED.format("sum", "detach()"), "findings", "SW616"),
        (ALIASED.format("mean", "requires_grad_()"), "clean", ""),
        (ALIASED.format("sum", "requires_grad_()"), "findings", "SW616"),
        (LOGGED, "clean", ""),
        (SUMMED.format("* world "), "clean", ""),
        (SUMMED.format(""), "findings", "SW616"),
        (COUNTED.format("SUM", "* world "), "clean", ""),
        (COUNTED.format("SUM", ""), "findings", "SW616"),
        (COUNTED.format("MAX", "* world "), "inconclusive", "addends of a sum are compared"),
        (PACKED.format("* world "), "inconclusive", "numbers of several scales are joined"),
        (PACKED.format(""), "inconclusive", "numbers of several scales are joined"),
        ("loss = per.sum() / mask.sum().item()", "inconclusive", "SW114"),
        ("loss = per.mean() * ((per > 1).sum().item() / len(x))", "inconclusive", "SW111"),
        ("loss = (per * (per > per.detach().sum().item() / len(x))).mean()", "inconclusive", "SW110"),
        ("loss = per.mean() * torch.arange(int(mask.sum().item()) + 1.0).sum()", "inconclusive", ""),
    ],
    ids=[
        "the loss itself, detached",
        "the loss itself, by data",
        "the loss itself, detached, off",
        "the loss itself",
        "the loss itself, off",
        "logged",
        "summed",
        "summed, off",
        "counted",
        "counted, off",
        "largest",
        "packed",
        "packed, off",
        "divisor",
        "weight",
        "threshold",
        "positions",
    ],
)
def test_what_a_rank_reads_of_its_own_share(project, lines, verdict, said):
    report = reported(project, PROGRAM + textwrap.dedent(lines) + STEP)
    codes = [finding["code"] for finding in report["findings"]]
    told = [*codes, *report["coverage"].get("refused_globally", [])]
    assert report["verdict"] == verdict, told
    assert any(said in one for one in told) or not said, told
    for finding in report["findings"]:  # nothing that is divided for the log has to do with it
        (told,) = finding["help"]
        assert told.startswith("(loss * dist.get_world_size(group=dist.group.WORLD)).backward() in line ")
