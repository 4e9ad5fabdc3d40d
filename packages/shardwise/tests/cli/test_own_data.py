"""Has each rank data of its own? What says so where gradients are averaged, and over which axes of a mesh."""

from __future__ import annotations

import json

import pytest

from .test_observe import DDP, FSDP2, reported

ALONE = DDP.replace("nn.functional.mse_loss(ddp(inputs), targets)", "ddp(inputs).square().mean()")
"""Without targets."""

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("kept")]


def test_what_a_model_is_called_with_that_fully_shard_has_split_is_each_ranks_own(project):
    report = reported(project, FSDP2)
    assert (report["verdict"], report["findings"]) == ("inconclusive", [])
    (data,) = report["coverage"]["own_data"]
    assert (data["what"], data["alike"]) == ("0 of FSDPLinear", [0, 1, 2]), "one more of each group is run"
    assert (report["coverage"]["typed_inputs"], report["coverage"]["inputs"]) == (1, 1)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("old", "new", "typed"),
    [
        ("sampler=DistributedSampler(data)", "shuffle=True", 1),
        ("ddp(inputs)", "ddp(input=inputs)", 1),
        ("ddp = DistributedDataParallel(model)", "ddp = model", 0),
    ],
    ids=["DDP", "DDP, by keyword", "no wrapper"],
)
def test_nobody_has_to_say_that_data_are_each_ranks_own_where_gradients_are_averaged(project, old, new, typed):
    plain = ALONE.replace("sampler=DistributedSampler(data)", "shuffle=True")
    report = reported(project, plain.replace(old, new))
    assert report["findings"] == []
    assert (report["coverage"]["typed_inputs"], report["verdict"]) == (typed, "inconclusive")
    assert len(report["coverage"]["own_data"]) == typed


def test_that_data_are_each_ranks_own_is_assumed_and_said_where_there_are_no_values(project):
    plain = ALONE.replace("sampler=DistributedSampler(data)", "shuffle=True")
    done = project.check_source(plain, "--mesh", "dp=2", "--fake", typed=False)
    assert done.exit_code == 3
    said = "not judged: whether each rank has data of its own: nothing says so of argument 0 of DistributedDataParallel"
    assert said in done.stdout
    assert "  shardwise check train.py --mesh dp=2 --ranks all compares the data of all ranks\n" in done.stdout


@pytest.mark.slow
def test_what_is_assumed_once_is_not_said_the_next_time(project):
    """As where a model is asked without gradients before it is trained."""
    plain = ALONE.replace("sampler=DistributedSampler(data)", "shuffle=True")
    report = reported(project, plain.replace("    ddp(", "    with torch.no_grad():\n        ddp(inputs)\n    ddp("))
    assert [one["said"] for one in report["coverage"]["own_data"]] == [False]
    assert report["verdict"] == "inconclusive"


OWN = ALONE.replace("sampler=DistributedSampler(data)", "shuffle=False").replace(
    "data = Tens", "rank = dist.get_rank()\ntorch.manual_seed(0)\ndata = Tens"
)


PACKED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Positions(nn.Embedding):
    def forward(self, positions):
        return super().forward(positions).mean()

dist.init_process_group("gloo")
lengths = [[1, 3], [2, 2]][dist.get_rank()]
model = DistributedDataParallel(Positions(4, 2))
model(torch.cat([torch.arange(length) for length in lengths])).backward()
"""


@pytest.mark.processes
def test_constants_that_a_model_is_called_with_may_be_each_ranks_own(project):
    """Positions of the documents that a rank has packed: the list that it takes them from says so to no type."""
    done = project.check_source(PACKED, "--mesh", "dp=2", "--ranks", "all", "--format", "json", typed=False)
    report = json.loads(done.stdout)
    assert (report["verdict"], report["findings"]) == ("clean", [])


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        ("", "", [[0, 1]]),
        ("ddp(inputs)", "ddp(inputs * (rank + 1))", []),
        ("torch.randn(32, 6)", "torch.randn(64, 6)[rank * 32 : rank * 32 + 32]", []),
        ("manual_seed(0)", "manual_seed(rank)", []),
        ("shuffle=False", "sampler=DistributedSampler(data)", []),
        ("shuffle=False", "sampler=DistributedSampler(data, 2, 0)", [[0, 1]]),
        ("ddp(inputs)", "ddp(torch.ones(4, 6))", []),
        ("ddp(inputs)", "ddp(inputs * rank)", []),
    ],
    ids=["the same", "scaled", "cut", "drawn apart", "a sampler", "the sampler of rank 0", "one value", "on one rank"],
)
def test_ranks_that_are_run_side_by_side_have_their_data_compared(project, old, new, alike):
    done = project.check_source(
        OWN.replace(old, new, 1), "--mesh", "dp=2", "--ranks", "all", "--format", "json", typed=False
    )
    report = json.loads(done.stdout)
    assert [one["alike"] for one in report["coverage"]["own_data"] if one["alike"]] == alike
    assert (report["verdict"], report["findings"]) == ("inconclusive" if alike else "clean", [])


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.randn(32, 6)", "torch.randn(64, 6)[rank::2]"),
        ("torch.randn(32, 6)", "torch.randn(64, 6).chunk(2)[rank]"),
        ("manual_seed(0)", "manual_seed(rank)"),
        ("ddp(inputs)", "ddp(torch.from_numpy(__import__('numpy').random.rand(4, 6)).float())"),
    ],
    ids=["every other row", "a chunk", "a seed", "unseeded numpy"],
)
def test_of_data_of_which_nothing_says_so_one_more_rank_is_asked(project, old, new):
    """Where that is all that is open: a rank of each group that averages gradients."""
    report = reported(project, OWN.replace(old, new, 1), "--world-size", "2")
    (data,) = report["coverage"]["own_data"]
    assert (report["verdict"], report["findings"], data["apart"]) == ("clean", [], [0, 1])
    done = project.check_source(OWN.replace(old, new, 1), "--world-size", "2", typed=False)
    assert done.stdout.endswith("; ranks 0 and 1 have data of their own\n")


DEALT_OUT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data, targets = torch.randn(2, 8, 6), torch.randn(2, 8, 1)
ddp = DistributedDataParallel(nn.Linear(6, 1))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
n = 8 // world
for x, y in zip(data, targets):
    x, y = x.OWN, y.OWN
    loss = nn.functional.mse_loss(ddp(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("own", "is_part"),
    [
        ("x[rank * n : (rank + 1) * n]", True),
        ("x[rank * n :][:n]", False),
        ("x.chunk(world)[rank]", True),
        ("x.narrow(0, rank * n, n)", True),
        ("x[rank::world]", True),
        ("x.view(world, n, -1)[rank]", False),
        ("x.unflatten(0, (world, n)).select(0, rank)", False),
    ],
)
def test_what_a_program_cuts_by_a_ranks_number_is_its_own(project, own, is_part):
    """Where cuts are the parts of a dim, in whatever order, global types see the scale of what is made of them."""
    source = DEALT_OUT.replace("x.OWN, y.OWN", f"{own}, {own.replace('x', 'y')}")
    report = reported(project, source, "--world-size", "2")
    assert (report["verdict"], report["findings"]) == ("clean", [])
    (data,) = report["coverage"]["own_data"]
    assert (data["said"], data["apart"]) == (True, [0, 1]), "the second run is of two ranks"
    divided = reported(project, source.replace("loss.backward", "(loss / world).backward"), "--world-size", "2")
    assert [one["code"] for one in divided["findings"]] == (["SW616"] if is_part else [])


@pytest.mark.parametrize(("said", "verdict"), [("S(0)", "clean"), ("V", "clean"), ("S(1)", "findings")])
def test_what_is_cut_by_a_ranks_number_may_be_said_to_be_a_shard(project, said, verdict):
    claim = f"import shardwise; shardwise.assert_type(x, {{dist.group.WORLD: shardwise.{said}}})"
    source = DEALT_OUT.replace("x.OWN, y.OWN", f"x.chunk(world)[rank], y.chunk(world)[rank]; {claim}")
    report = reported(project, source, "--world-size", "2", "--global")
    assert report["verdict"] == verdict
    assert [one["code"] for one in report["findings"]][:1] == (["SW131"] if verdict == "findings" else [])


@pytest.mark.parametrize(
    ("cut", "verdict"),
    [
        ("y.chunk(world)[0]", "inconclusive"),
        ("y[:n]", "inconclusive"),
        ("torch.randn(n, 1, generator=torch.Generator().manual_seed(rank))", "clean"),
        ("torch.zeros(n, 1)", "clean"),
    ],
    ids=["the first chunk", "the first rows", "drawn apart", "a constant"],
)
def test_targets_of_which_nothing_says_so_are_compared_too(project, cut, verdict):
    """What has as many rows as the rank's outputs is meant to be of its rows."""
    source = DEALT_OUT.replace("x.OWN, y.OWN", f"x[rank::world], {cut}")
    report = reported(project, source, "--world-size", "2")
    assert (report["verdict"], report["findings"]) == (verdict, [])
    targets = [one for one in report["coverage"]["own_data"] if one["of_operator"]]
    assert [one["what"] for one in targets] == ([] if "zeros" in cut else ["1 of mse_loss"])
    assert [one["alike"] for one in targets if verdict == "inconclusive"] == [[0, 1]] * (verdict == "inconclusive")


@pytest.mark.parametrize(
    ("sampler", "verdict"),
    [
        ("DistributedSampler(data, seed=3)", "clean"),
        ("DistributedSampler(data, seed=3 + dist.get_rank())", "inconclusive"),
        ("DistributedSampler(data, seed=dist.get_rank(), shuffle=False)", "clean"),
    ],
    ids=["one seed", "a seed of each rank", "no shuffling"],
)
def test_a_sampler_that_shuffles_by_the_rank_deals_nothing_out(project, sampler, verdict):
    report = reported(project, ALONE.replace("DistributedSampler(data)", sampler))
    assert (report["verdict"], report["findings"]) == (verdict, [])
    said = report["coverage"]["unjudged_losses"]
    assert ["each shuffles for its DistributedSampler by a seed of its own" in one for one in said] == (
        [True] if verdict == "inconclusive" else []
    )


def test_a_matrix_of_as_many_rows_is_no_target(project):
    source = DEALT_OUT.replace("x.OWN, y.OWN", "x[rank::world], y[rank::world]").replace(
        "nn.Linear(6, 1)", "nn.Linear(6, 4)"
    )
    source = source.replace("n = 8", "book = torch.randn(4, 1)\nn = 8").replace("ddp(x)", "ddp(x) @ book")
    report = reported(project, source, "--world-size", "2")
    assert (report["verdict"], [one["said"] for one in report["coverage"]["own_data"]]) == ("clean", [True])


def test_samples_whose_numbers_are_a_ranks_own_are_its_own(project):
    report = reported(project, OWN.replace("shuffle=False", "sampler=range(rank, 32, 2)"), "--world-size", "2")
    (data,) = report["coverage"]["own_data"]
    assert (report["verdict"], report["findings"], data["said"]) == ("clean", [], True)


@pytest.mark.parametrize(
    "cut",
    ["x[: n * world // 2]", "x[0:n]", "x[dist.get_rank(other) * n :][:n]"],
    ids=["a size", "plain numbers", "the place in another group"],
)
def test_what_is_cut_by_another_number_is_not(project, cut):
    source = DEALT_OUT.replace("x.OWN, y.OWN", f"{cut}, {cut.replace('x', 'y')}")
    source = source.replace("n = 8", "other = dist.new_group([rank])\nn = 8")
    data = reported(project, source, "--world-size", "2")["coverage"]["own_data"]
    assert [(one["what"], one["said"]) for one in data] == [
        ("0 of DistributedDataParallel", False),
        ("1 of mse_loss", False),
    ]


@pytest.mark.slow
def test_data_that_are_equal_on_the_rank_that_is_asked_leave_no_verdict(project):
    done = project.check_source(OWN, "--world-size", "4", typed=False)
    assert "each rank has data of its own: argument 0 of DistributedDataParallel is equal on ranks 0 and 1\n" in (
        done.stdout
    )
    assert done.exit_code == 3


@pytest.mark.slow
def test_a_rank_that_does_not_come_to_its_end_says_nothing_of_the_data(project):
    report = reported(project, OWN + "assert rank == 0\n", "--world-size", "2")
    assert report["verdict"] == "inconclusive"
    assert [(one["alike"], one["apart"]) for one in report["coverage"]["own_data"]] == [([], [])]


MESH = """from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
model = nn.Linear(6, 1)
"""


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    "wrapper",
    [
        "ddp = DistributedDataParallel(model)",
        "ddp = DistributedDataParallel(model, process_group=mesh._flatten('all').get_group())",
        "ddp = model; fully_shard(ddp, mesh=mesh._flatten('all'))",
    ],
    ids=["the world", "axes in one", "fully_shard"],
)
def test_gradients_may_be_averaged_over_several_axes_of_a_mesh_at_once(project, wrapper):
    """Each of them is part of what the wrapper averages over."""
    source = DDP.replace("ddp = DistributedDataParallel(model)", wrapper).replace("model = nn.Linear(6, 1)\n", MESH)
    report = reported(project, source)
    assert (report["verdict"], report["findings"]) == ("clean", [])
    summed = reported(project, source.replace("targets).backward()", 'targets, reduction="sum").backward()'))
    assert [one["code"] for one in summed["findings"]] == ["SW616"]


def test_what_an_optimizer_sends_over_several_axes_at_once_keeps_its_type(project):
    """A parameter that the wrapper keeps equal over the world is sent through a view that is said with two axes."""
    source = DDP.replace("ddp = DistributedDataParallel(model)", MESH + "ddp = DistributedDataParallel(model)")
    source = source.replace("torch.optim.SGD(ddp.parameters()", "Zero(ddp.parameters(), torch.optim.SGD")
    source = "from torch.distributed.optim import ZeroRedundancyOptimizer as Zero\n" + source
    report = reported(project, source)
    assert (report["verdict"], report["findings"]) == ("clean", [])
    summed = reported(project, source.replace("targets).backward()", 'targets, reduction="sum").backward()'))
    assert [one["code"] for one in summed["findings"]] == ["SW616"]


def test_the_data_of_ranks_over_which_no_gradient_is_averaged_leave_no_verdict(project):
    """The sampler deals the samples out over both axes, and the wrapper averages over one of them."""
    source = DDP.replace("ddp = DistributedDataParallel(model)", 'ddp = model; fully_shard(ddp, mesh=mesh["dp"])')
    report = reported(project, source.replace("model = nn.Linear(6, 1)\n", MESH))
    (found,) = report["coverage"]["unjudged_gradients"]
    assert (report["verdict"], report["findings"]) == ("inconclusive", [])
    assert (found["unknown"], found["taken"]) == (2, 2)


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("size", "rank", "over"),
    [
        ('mesh["dp"].size()', 'mesh["dp"].get_local_rank()', "dp"),
        ('mesh["cp"].size()', 'mesh["cp"].get_local_rank()', "cp"),
        ("4 // mesh['cp'].size()", "dist.get_rank() // 2", "dp"),
        ("2", "0", None),
    ],
)
def test_the_number_that_a_sampler_is_given_tells_its_axis(project, size, rank, over):
    """Two axes of two ranks: for the first rank both numbers are 0."""
    source = DDP.replace("DistributedSampler(data)", f"DistributedSampler(data, {size}, {rank})")
    mesh = 'from torch.distributed.device_mesh import init_device_mesh\nmesh = init_device_mesh("cpu", (2, 2), '
    source = source.replace("data = Tens", mesh + 'mesh_dim_names=("dp", "cp"))\ndata = Tens')
    source = source.replace("    nn.f", "    import shardwise; shardwise.reveal_type(inputs)\n    nn.f")
    report = reported(project, source)
    told = [one["message"] for one in report["findings"] if one["code"] == "SW922"]
    assert [f"{{{over}: V}}" in one for one in told] == ([True] if over else [False])


def test_a_gradient_that_is_not_averaged_is_found_without_a_word_about_the_data(project):
    plain = ALONE.replace("sampler=DistributedSampler(data)", "shuffle=True")
    report = reported(project, plain.replace("    ddp(", "    with ddp.no_sync():\n        ddp("))
    assert [one["code"] for one in report["findings"]] == ["SW608"]


def test_a_sampler_of_which_several_axes_may_be_meant_says_nothing(project):
    mesh = 'from torch.distributed.device_mesh import init_device_mesh\ninit_device_mesh("cpu", (2, 2))\n'
    split = DDP.replace("DistributedSampler(data)", "DistributedSampler(data, num_replicas=2, rank=0)")
    split = split.replace("DistributedDataParallel(model)", "model")
    done = project.check(project.write(mesh + split), "--mesh", "dp=2,tp=2", "--format", "json")
    assert json.loads(done.stdout)["coverage"]["typed_inputs"] == 0


def test_with_global_types_too_data_of_its_own_has_to_be_said_of_each_rank(project):
    unsaid = DDP.replace(", sampler=DistributedSampler(data)", "")
    report = reported(project, unsaid, "--global")
    assert (report["verdict"], [one["said"] for one in report["coverage"]["own_data"]]) == ("inconclusive", [False])


COSINES = DDP.replace(
    "model = nn.Linear(6, 1)",
    """
class Turned(nn.Linear):
    def __init__(self):
        super().__init__(6, 1)
        self.register_buffer("steps", 1 / 10 ** (torch.arange(6) / 6), persistent=False)

    def forward(self, x):
        return super().forward(x * self.steps.cos())

model = Turned()""",
)


def test_of_each_of_all_ranks_as_much_is_judged_as_of_one(project):
    """DDP copies buckets into the buffers of a module in C++, which no program calls: they keep their types."""
    alone = reported(project, COSINES, "--world-size", "2")
    together = reported(project, COSINES, "--world-size", "2", "--ranks", "all")
    assert (alone["verdict"], together["verdict"]) == ("clean", "clean")
    assert (together["checked_ops"], together["unchecked_ops"]) == (
        2 * alone["checked_ops"], 2 * alone["unchecked_ops"]
    )  # fmt: skip
