"""A clean program is run once more, with global types and on more ranks: what one run with local types leaves open."""

from __future__ import annotations

import pytest

from .test_observe import DDP, reported

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("kept")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".backward()", ".div(dist.get_world_size()).backward()"),
        ("targets).backward()", 'targets, reduction="sum").backward()'),
    ],
    ids=["divided by the number of ranks", "a sum"],
)
def test_a_loss_on_another_scale_is_found_though_local_types_know_none_of_a_mean(project, old, new):
    report = reported(project, DDP.replace(old, new))
    (found,) = report["findings"]
    assert (found["code"], found["place"]["line"]) == ("SW616", 16)
    assert "4 times too " in found["message"]
    assert any("with global types" in fact for fact in found["facts"])
    assert (report["exit_code"], report["coverage"]["refused_globally"]) == (1, [])


@pytest.mark.parametrize(
    ("leaves", "said"),
    [
        ("import os; os.mkdir('results')", "FileExistsError: "),
        ("import os; os.path.exists('results') and os._exit(3); os.mkdir('results')", "SystemExit(3)"),
        ("import os; os.path.exists('results') and os.abort(); os.mkdir('results')", "it broke"),
    ],
    ids=["raises", "exits", "aborts"],
)
def test_a_program_that_cannot_be_run_again_is_not_clean_for_what_the_second_run_would_say(project, leaves, said):
    report = reported(project, DDP + f"{leaves}\n")
    (refused,) = report["coverage"]["refused_globally"]
    assert (report["verdict"], report["findings"]) == ("inconclusive", [])
    assert refused.startswith("the program does not come to its end when it is run once more (")
    assert said in refused


def test_statistics_of_a_ranks_own_batch_are_not_judged(project):
    """One device has others; yet many train so on purpose."""
    source = DDP.replace("nn.Linear(6, 1)\n", "nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 1))\n")
    report = reported(project, source)
    (refused,) = report["coverage"]["refused_globally"]
    assert (report["verdict"], report["findings"]) == ("inconclusive", [])
    assert "batch_norm cannot work on" in refused
    assert "(SW405, " in refused
    assert "/" not in refused, "the file is shown relative to the folder"


OWN_COUNT = DDP.replace(
    "    nn.functional.mse_loss(ddp(inputs), targets).backward()\n",
    """\
    losses = nn.functional.mse_loss(ddp(inputs), targets, reduction="none")
    count = (targets > -9).sum()
    (losses.sum() / count.clamp(min=1)).backward()
""",
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", "count, and one device by all, which is the same only where ranks count alike"),
        (".clamp(min=1)", "", "count, and one device by all, which is the same only where ranks count alike"),
        ("(targets > -9)", "targets", "count, and one device by their sum"),
    ],
    ids=["a count, at least one", "a count", "another number"],
)
def test_of_a_mean_over_a_ranks_own_count_it_is_said_when_it_is_that_of_one_device(project, old, new, said):
    report = reported(project, OWN_COUNT.replace(old, new))
    (refused,) = report["coverage"]["refused_globally"]
    assert (report["verdict"], report["findings"]) == ("inconclusive", [])
    assert refused.endswith(f": each rank goes by its own {said}")


PACKED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 1)

    def forward(self, inputs):
        places = torch.arange(6).expand(inputs.shape[0], -1)
        apart = (places.diff(dim=-1) != 1).cumsum(-1)
        if not (apart[:, -1] == 0).all():
            raise ValueError("packed")
        return self.out(inputs)


dist.init_process_group("gloo")
inputs, targets = torch.randn(16, 6), torch.randn(16, 1)
ddp = DistributedDataParallel(Packed())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
mine, wanted = (x.chunk(dist.get_world_size())[dist.get_rank()] for x in (inputs, targets))
nn.functional.mse_loss(ddp(mine), wanted).backward()
optimizer.step()
"""


def test_what_is_read_of_constants_with_a_row_for_each_sample_is_what_one_device_reads(project):
    """Global types cut the rows, and each rank would read a minimum of its own; yet all have the same rows."""
    report = reported(project, PACKED, "--mesh", "dp=4")
    assert (report["verdict"], report["findings"], report["coverage"]["refused_globally"]) == ("clean", [], [])
    assert report["coverage"]["constants_read"] == ["train.py:16:16"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("apart.eq(0).sum() == 0", "SW112"),
        ("not apart.eq(0).sum()", "SW115"),
        ("inputs.amin() < -9", "SW116"),
        ("(apart[:, -1] + inputs[:, 0] < -9).all()", "SW116"),
        ("float(inputs.amin()) < -9", "SW116"),
        ("min((inputs[:, 0].amin() + torch.arange(2)).tolist()) < -9", "SW116"),
    ],
    ids=[
        "a sum, of which one device has more",
        "a sum is read",
        "data",
        "constants beside data",
        "a number of data",
        "a list of them",
    ],
)
def test_what_each_rank_reads_of_its_own_share_is_still_told(project, new, said):
    source = PACKED.replace("not (apart[:, -1] == 0).all()", new)
    report = reported(project, source, "--mesh", "dp=4")
    told = [*report["coverage"]["refused_globally"], *(one["code"] for one in report["findings"])]
    assert len(told) == 1
    assert said in told[0]


@pytest.mark.parametrize(
    ("divided", "beside", "codes"),
    [
        ("", "", []),
        (".div(dist.get_world_size())", "", ["SW616"]),
        (".div(dist.get_world_size())", "targets.sum().relu()", []),
    ],
    ids=["right", "divided by the ranks", "beside what global types refuse"],
)
def test_of_a_program_that_says_its_types_global_ones_judge_the_scale_of_gradients_alone(
    project, divided, beside, codes
):
    said = "import shardwise\nR = shardwise.R\n" + DDP.replace(
        "    nn.f", f'    shardwise.assert_type(torch.ones(2), {{"rank": R}})\n    {beside}\n    nn.f'
    ).replace(".backward()", f"{divided}.backward()")
    report = reported(project, said, "--mesh", "rank=4")
    assert (report["coverage"]["says_types"], [one["code"] for one in report["findings"]]) == (True, codes)
    assert report["verdict"] == ("findings" if codes else "clean")
    assert report["coverage"]["refused_globally"] == []


def test_a_scale_that_nobody_knows_is_listed_where_it_is_lost(project):
    report = reported(project, DDP.replace(".backward()", ".div(4).backward()"))
    assert (report["verdict"], report["lost"][0]["place"]["line"]) == ("clean", 15)


@pytest.mark.parametrize(
    ("old", "new", "verdict", "codes"),
    [
        ("DistributedSampler(data)", "DistributedSampler(data, rank=0)", "inconclusive", []),
        (
            "optimizer.step()",
            "optimizer.step(); shown = model.weight.detach() * [2, 1, 1, 1][dist.get_rank()]; shown + 1",
            "findings",
            ["SW507"],
        ),
        (
            "optimizer.step()",
            "optimizer.step(); shown = model.weight.detach() * [2, 1, 1, 1][len(data) % 4]; shown + 1",
            "clean",
            [],
        ),
    ],
    ids=["the sampler of the first rank", "a number by the rank", "an equal number"],
)
def test_what_looks_right_on_one_rank_is_compared_with_another(project, old, new, verdict, codes):
    report = reported(project, DDP.replace(old, new))
    assert (report["verdict"], [one["code"] for one in report["findings"]]) == (verdict, codes)
    (data,) = report["coverage"]["own_data"]
    assert (data["alike"], data["apart"]) == (([0, 1], []) if verdict == "inconclusive" else ([], [0, 1]))
    assert all("found in a second run, on ranks 0 and 1 (--ranks 0,1)" in one["facts"] for one in report["findings"])


SAVED = """
import torch.distributed.checkpoint as checkpoint
checkpoint.save({"model": ddp.state_dict()}, checkpoint_id="saved")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("reduction", "codes"), [("mean", []), ("sum", ["SW616"])])
def test_a_program_that_takes_all_ranks_is_run_on_all_with_global_types_too(project, reduction, codes):
    report = reported(project, DDP.replace("targets)", f"targets, reduction='{reduction}')") + SAVED)
    assert ([one["code"] for one in report["findings"]], report["ranks"]) == (codes, [0, 1, 2, 3])
    assert report["verdict"] == ("findings" if codes else "clean")


@pytest.mark.parametrize(("reduction", "codes"), [("mean", []), ("sum", ["SW616"])])
def test_the_scale_of_a_loss_is_judged_where_ranks_are_run_too(project, reduction, codes):
    report = reported(project, DDP.replace("targets)", f"targets, reduction='{reduction}')"), "--ranks", "all")
    assert [one["code"] for one in report["findings"]] == codes
    assert report["verdict"] == ("findings" if codes else "clean")
