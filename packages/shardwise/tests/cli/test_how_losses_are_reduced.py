"""A loss that is no mean of a rank's samples: what averages gradients does not give those of one device, unless the
program makes up for it. Either its scale is known of how the data were dealt out, or it is said not to be judged.
"""

from __future__ import annotations

import textwrap

import pytest

from .test_logged_numbers import BEGUN, STEP
from .test_observe import reported

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("kept")]

PROGRAM = BEGUN + "rows = [(torch.randn(6), n % 3) for n in range(8)]\n"
DEALT = """
x, y = torch.randn(8, 6)[rank::world], torch.randint(0, 3, (8,))[rank::world]
"""
OF_EACH = """
x, y = torch.randn(2 * world, 6)[rank::world], torch.randint(0, 3, (2 * world,))[rank::world]
"""
PUT_TOGETHER = """
x, y = torch.zeros(8, 6), torch.full((8,), -1)
for n, (row, label) in enumerate(rows):
    x[n] = row
    y[n : n + 1] = torch.tensor([label])
x, y = x[rank::world], y[rank::world]
"""
LISTED = """
mine = rows[rank::world]
x, y = torch.stack([row for row, _ in mine]), torch.tensor([label for _, label in mine])
"""
SUM = 'loss = F.cross_entropy(model(x), y, reduction="sum")'
TOTAL = "total = torch.tensor(1.0 * len(x)); dist.all_reduce(total); "
NO_MEAN = "a sum over what the rank has"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("data", "loss", "verdict", "said"),
    [
        (DEALT, "loss = F.cross_entropy(model(x), y)", "clean", ""),
        (DEALT, SUM, "findings", "SW616"),
        (DEALT, SUM + " * world / 8", "clean", ""),
        (PUT_TOGETHER, "loss = F.cross_entropy(model(x), y)", "clean", ""),
        (PUT_TOGETHER, SUM, "findings", "SW616"),
        (LISTED, "loss = F.cross_entropy(model(x), y)", "clean", ""),
        (LISTED, SUM + " / len(x)", "clean", ""),
        (LISTED, SUM, "inconclusive", NO_MEAN),
        (LISTED, SUM + " * world / 8", "clean", ""),
        (LISTED, SUM + " / 8", "inconclusive", NO_MEAN),
        (LISTED, "loss = F.cross_entropy(model(x), y, ignore_index=1)", "inconclusive", "does not ignore"),
        (LISTED, TOTAL + SUM + " * world / total", "inconclusive", NO_MEAN),
        (LISTED, TOTAL + SUM + " / total.item()", "inconclusive", NO_MEAN),
        (LISTED, TOTAL + SUM + " / total", "inconclusive", NO_MEAN),
    ],
    ids=[
        "dealt, mean",
        "dealt, sum",
        "dealt, sum made up for",
        "put together, mean",
        "put together, sum",
        "listed, mean",
        "listed, divided by the own count",
        "listed, sum",
        "listed, sum made up for",
        "listed, by the number of all",
        "listed, some ignored",
        "listed, by the count of all",
        "listed, by it as a number",
        "listed, by it, not made up for",
    ],
)
def test_a_loss_is_a_mean_or_its_scale_is_known_or_it_is_not_judged(project, data, loss, verdict, said):
    report = reported(project, PROGRAM + textwrap.dedent(data) + loss + STEP)
    told = [*(finding["code"] for finding in report["findings"]), *report["coverage"]["own_reductions"]]
    assert report["verdict"] == verdict, told
    assert any(said in one for one in told) if said else not told, told


IN_A_ROW = PROGRAM.replace("DistributedDataParallel(", "FullyShardedDataParallel(").replace(
    "from torch.nn.parallel import DistributedDataParallel",
    "from torch.distributed.fsdp import FullyShardedDataParallel",
)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("loss", "verdict", "said"),
    [
        ("F.cross_entropy(model(x), y)", "clean", ""),
        ('F.cross_entropy(model(x), y, reduction="sum") / len(x)', "clean", ""),
        ('F.cross_entropy(model(x), y, reduction="sum")', "inconclusive", NO_MEAN),
        ("F.cross_entropy(model(x), y) / world", "inconclusive", "by the number of ranks"),
    ],
)
def test_of_gradients_in_one_row_no_step_knows_a_scale_so_the_loss_is_judged(project, loss, verdict, said):
    assert_judged(reported(project, IN_A_ROW + DEALT + f"loss = {loss}" + STEP), verdict, said)


def assert_judged(report, verdict, said):
    """Nothing is found, and of how the loss is reduced ``said`` is told, or nothing."""
    told = report["coverage"]["own_reductions"]
    assert (report["verdict"], report["findings"]) == (verdict, [])
    assert any(said in one for one in told) if said else not told, told


OF_MICRO_BATCHES = """
optimizer.zero_grad()
parts = list(zip(x.CUT, y.CUT))
for x, y in parts:
    loss = LOSS
    loss.backward()
optimizer.step()
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("cut", "loss", "codes"),
    [
        ("split(2)", "F.cross_entropy(model(input=x), y) / len(parts)", []),
        ("split(2)", "F.cross_entropy(model(x), y) / (16 / 2 / world)", []),
        ("split(2)", "F.cross_entropy(model(x), y) * world / 8", []),
        ("split(2)", SUM.removeprefix("loss = ") + " * world / 16", []),
        ("split(2)", SUM.removeprefix("loss = ") + " / len(x) / len(parts)", []),
        ("chunk(2)", "F.cross_entropy(model(x), y) / 2", []),
        ("split(2)", "F.cross_entropy(model(x), y)", ["SW616"]),
        ("split(2)", "F.cross_entropy(model(x), y) / 4", ["SW616"]),
        ("split(2)", "F.cross_entropy(model(x), y) / 2", ["SW616"]),
        ("split(2)", SUM.removeprefix("loss = ") + " / 16", ["SW616"]),
        ("split(2)", SUM.removeprefix("loss = ") + " / len(x) / 4", ["SW616"]),
        ("chunk(2)", SUM.removeprefix("loss = ") + " / 16", ["SW616"]),
        ("chunk(2)", "F.cross_entropy(model(x), y) / len(parts) / world", ["SW616"]),
    ],
)
def test_of_micro_batches_it_is_known_whether_they_are_fewer_on_more_ranks(project, cut, loss, codes):
    report = reported(
        project, PROGRAM + DEALT.replace("8", "16") + OF_MICRO_BATCHES.replace("CUT", cut).replace("LOSS", loss)
    )
    assert ([finding["code"] for finding in report["findings"]], report["lost"]) == (codes, [])


def test_batches_of_a_sampler_that_are_fewer_on_more_ranks_are_no_finding(project):
    source = (
        BEGUN
        + """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
data = TensorDataset(torch.randn(16, 6), torch.randint(0, 3, (16,)))
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
optimizer.zero_grad()
for x, y in loader:
    (F.cross_entropy(model(x), y) / len(loader)).backward()
optimizer.step()
"""
    )
    report = reported(project, source)
    assert report["findings"] == []
    assert any("the scale over" in one["what"] for one in report["lost"])


OWN = """
torch.manual_seed(rank + 1)
x, y = torch.randn(2, 6), torch.randint(0, 3, (2,))
"""
BY_RANKS = "multiplied or divided by the number of ranks"


@pytest.mark.parametrize(
    ("loss", "verdict", "said"),
    [
        ("F.cross_entropy(model(x), y)", "clean", ""),
        ("F.cross_entropy(model(x), y) / 4", "clean", ""),
        ("F.cross_entropy(model(x), y) / world", "inconclusive", BY_RANKS),
        ("dist.get_world_size() * model(x).square().mean()", "inconclusive", BY_RANKS),
        ("model(x).square().mean() * world / world", "clean", ""),
        ("model(x).square().mean() + model(x).abs().mean() / world", "inconclusive", BY_RANKS),
        ("model(x).square().sum() / len(x)", "clean", ""),
        ("model(x).square().sum() * world / 8", "clean", ""),
        ("model(x).square().sum() / 8", "inconclusive", NO_MEAN),
    ],
)
def test_of_data_that_nobody_has_said_the_scale_of_a_mean_is_judged_by_its_graph(project, loss, verdict, said):
    """Each rank has made its own, so no type knows a dim along which one device would have them."""
    assert_judged(reported(project, PROGRAM + OWN + f"loss = {loss}" + STEP), verdict, said)


SHARDED = """
from torch.distributed.fsdp import fully_shard
other = nn.Linear(6, 3)
fully_shard(other).set_gradient_divide_factor(1.0)
F.cross_entropy({}(x), y, reduction="sum").mul(1 / 8).backward()
"""


@pytest.mark.parametrize(
    ("first", "then", "judged"), [("other", "model", True), ("model", "other", True), ("other", "other", False)]
)
def test_how_one_model_s_gradients_are_divided_says_nothing_of_another_s(project, first, then, judged):
    loss = f'loss = F.cross_entropy({then}(x), y, reduction="sum") / 8'
    report = reported(project, PROGRAM + LISTED + SHARDED.format(first) + loss + STEP)
    assert bool(report["coverage"]["own_reductions"]) is judged, report["coverage"]


PLAIN = "ranks = int(f'{world}'); "
"""A number of which no type is left."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("data", "loss", "verdict", "lost"),
    [
        (DEALT, SUM + " / 8", "findings", False),
        (DEALT, PLAIN + SUM + " / (8 // ranks)", "clean", False),
        (DEALT, PLAIN + SUM + " * ranks / 8", "clean", False),
        (DEALT, PLAIN + SUM + " * 2 * ranks / 16", "clean", False),
        (DEALT, PLAIN + "loss = F.cross_entropy(model(x), y) / ranks", "findings", False),
        (DEALT, "loss = F.cross_entropy(model(x), y) / 3", "clean", False),
        (OF_EACH, SUM + " / 2", "clean", True),
        (OF_EACH, PLAIN + SUM + " / ranks", "clean", True),
    ],
    ids=[
        "by all samples",
        "by the own",
        "by all, times the ranks",
        "two factors",
        "a mean, by the ranks",
        "a mean, by a constant",
        "as many of each rank, by these",
        "as many of each rank, by the ranks",
    ],
)
def test_numbers_are_compared_with_those_on_another_number_of_ranks(project, data, loss, verdict, lost):
    report = reported(project, PROGRAM + data + loss + STEP)
    found = [finding["code"] for finding in report["findings"]]
    assert report["verdict"] == verdict, found
    assert found == (["SW616"] if verdict == "findings" else [])
    assert any("of what SGD.step takes" in one["what"] for one in report["lost"]) is lost, report["lost"]


ACCUMULATED = """
x, y = torch.randn(4, 8, 6)[0].chunk(world)[rank], torch.randint(0, 3, (8,)).chunk(world)[rank]
"""


@pytest.mark.parametrize(("loss", "codes"), [("/ 4 / ranks", ["SW616"]), ("/ 4", [])])
def test_two_numbers_that_are_equal_on_as_many_ranks_are_told_apart_on_other_ranks(project, loss, codes):
    loss = f"{PLAIN}loss = F.cross_entropy(model(x), y) {loss}"
    report = reported(project, PROGRAM + ACCUMULATED + loss + STEP)  # on four ranks
    assert [found["code"] for found in report["findings"]] == codes
    assert all("2 times too" in found["message"] for found in report["findings"])
    assert all(found["facts"][-1].endswith("; what is said is so on 2 ranks") for found in report["findings"])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("loss", "verdict", "said"),
    [
        ("own = y - y.float().mean(); loss = (per() * own).mean()", "inconclusive", "each rank goes by its own"),
        ("p = model(x).softmax(1).mean(0); loss = (p * p.log()).mean()", "inconclusive", "each rank goes by its own p"),
        ("o = model(x); loss = per(o).mean() + 0.1 * o.square().sum()", "findings", "SW150"),
        ("o = model(x); loss = per(o).mean() + 0.0 * o.square().sum()", "clean", ""),
        ("loss = sum(per(model(a[None]), b[None]).mean() for a, b in zip(x, y))", "inconclusive", "one by one"),
    ],
    ids=["own mean", "log of an own mean", "sum beside a mean", "nothing of a sum", "samples one by one"],
)
def test_a_rank_s_own_mean_may_be_meant_and_a_sum_beside_a_mean_is_not(project, loss, verdict, said):
    made = "def per(o=None, t=y): return F.cross_entropy(model(x) if o is None else o, t, reduction='none')\n"
    report = reported(project, PROGRAM + DEALT + made + loss + STEP)
    found = [finding["code"] for finding in report["findings"]]
    told = [*found, *report["coverage"]["refused_globally"], *report["coverage"]["own_elements"]]
    assert report["verdict"] == verdict, told
    assert any(said in one for one in told) if said else not told, told
