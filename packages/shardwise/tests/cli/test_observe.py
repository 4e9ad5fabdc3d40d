"""``shardwise check --observe``: what wrappers and torch's own marks say of a program without a word of types."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("kept")]

DDP = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = nn.Linear(6, 1)
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for inputs, targets in loader:
    nn.functional.mse_loss(ddp(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FSDP2 = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
model = nn.Linear(6, 4)
fully_shard(model, mesh=mesh)
model(torch.randn(2, 6)).mean().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
"""
DATA = {
    "what": "0 of DistributedDataParallel",
    "groups": [[0, 1, 2, 3]],
    "said": False,
    "digest": "",
    "alike": [],
    "apart": [],
    "of_operator": False,
}
PLAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(6, 4)
model(torch.randn(2, 6)).mean().backward()
dist.all_reduce(torch.ones(()))
"""


def reported(project, source, *options):
    done = project.check_source(source, "--world-size", "4", "--format", "json", *options, typed=False)
    assert done.exit_code == json.loads(done.stdout)["exit_code"]
    return json.loads(done.stdout)


def test_a_script_of_the_tutorial_is_typed_by_its_wrapper_and_its_sampler(project):
    report = reported(project, DDP)
    assert (report["verdict"], report["findings"]) == ("clean", [])
    assert report["coverage"]["own_data"][0].pop("place")["line"] == 15
    assert report["coverage"] == {
        "typed_parameters": 2,
        "parameters": 2,
        "typed_inputs": 1,
        "inputs": 1,
        "unjudged_axes": [],
        "own_data": [{**DATA, "said": True, "apart": [0, 1]}],
        "unjudged_gradients": [],
        "unjudged_losses": [],
        "says_types": False,
        "refused_globally": [],
        "own_elements": [],
        "own_reductions": [],
        "constants_read": [],
    }


HOOKED = DDP.replace(
    "for inputs",
    """\
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
ddp.register_comm_hook(STATE, HOOK)
for inputs""",
)


@pytest.mark.parametrize(
    ("state", "hook", "verdict"),
    [
        ("None", "default_hooks.fp16_compress_hook", "clean"),
        ("dist.group.WORLD", "default_hooks.allreduce_hook", "clean"),
        ("pairs[dist.get_rank() // 2]", "default_hooks.fp16_compress_hook", "inconclusive"),
        ("pairs[1 - dist.get_rank() // 2]", "default_hooks.allreduce_hook", "inconclusive"),
        (
            "post_localSGD_hook.PostLocalSGDState(None, pairs[dist.get_rank() // 2], 1)",
            "post_localSGD_hook.post_localSGD_hook",
            "inconclusive",
        ),
        ("None", "lambda state, bucket: default_hooks.allreduce_hook(None, bucket)", "inconclusive"),
    ],
    ids=["all by default", "all", "a part", "a part without this rank", "a part later", "the program's own"],
)
def test_a_hook_of_a_wrapper_averages_over_the_ranks_of_its_state(project, state, hook, verdict):
    report = reported(project, HOOKED.replace("STATE", state).replace("HOOK", hook))
    assert (report["verdict"], report["findings"]) == (verdict, [])
    assert bool(report["coverage"]["unjudged_gradients"]) is (verdict == "inconclusive")


def test_frozen_parameters_are_kept_equal_too(project):
    """The wrapper sends all of them from one rank when it is made."""
    report = reported(project, DDP.replace("ddp = ", "model.bias.requires_grad_(False)\nddp = "))
    assert (report["verdict"], report["coverage"]["typed_parameters"]) == ("clean", 2)


def test_inputs_given_by_keyword_are_counted(project):
    assert reported(project, DDP.replace("ddp(inputs)", "ddp(input=inputs)"))["coverage"]["typed_inputs"] == 1


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("ddp(inputs)", "model(inputs)", 16),
        (
            "ddp = DistributedDataParallel(model)\n",
            "model.requires_grad_(False).bias.requires_grad_(True); ddp = DistributedDataParallel(model); "
            "model.requires_grad_(True)\n",
            16,
        ),
        ("    optimizer.step", "    optimizer.step", 0),
    ],
    ids=["forward past the wrapper", "frozen while it was wrapped", "right"],
)
def test_gradients_that_the_wrapper_does_not_average_are_found(project, old, new, line):
    report = reported(project, DDP.replace(old, new))
    assert [(one["code"], one["place"]["line"]) for one in report["findings"]] == ([("SW608", line)] if line else [])


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_what_the_wrapper_hands_on_keeps_its_dims(project, option):
    source = DDP.replace("DistributedDataParallel(model)", f"DistributedDataParallel(model, {option}=True)")
    report = reported(project, source, "--global")
    assert (report["verdict"], report["findings"]) == ("clean", [])


def test_batches_of_which_nobody_knows_a_dim_are_no_finding_with_global_types(project):
    collated = DDP.replace(
        "batch_size=4,", "batch_size=4, collate_fn=lambda rows: [torch.stack(x) for x in zip(*rows)],"
    )
    report = reported(project, collated, "--global")
    assert (report["findings"], report["coverage"]["typed_inputs"]) == ([], 0)
    assert reported(project, collated)["coverage"]["typed_inputs"] == 1


def test_a_step_inside_no_sync_is_found(project):
    report = reported(project, DDP.replace("    nn.f", "    with ddp.no_sync():\n        nn.f"))
    assert [one["code"] for one in report["findings"]] == ["SW608"]


@pytest.mark.parametrize("options", [("--no-observe",), ("--strict", "--no-observe")], ids=" ".join)
def test_nothing_is_typed_unless_it_is_asked_for(project, options):
    assert reported(project, DDP, *options)["coverage"]["typed_parameters"] == 0


def test_strict_asks_for_types_in_the_source(project):
    assert reported(project, DDP, "--strict")["coverage"]["typed_parameters"] == 0
    assert reported(project, DDP, "--strict", "--observe")["coverage"]["typed_parameters"] == 2


def test_a_step_that_takes_gradients_of_which_nothing_is_known_leaves_no_verdict(project):
    """A parameter beside the wrapper, of which nobody has said what it is."""
    beside = DDP.replace("ddp.parameters()", "[*ddp.parameters(), other]").replace(
        "model = nn", "other = nn.Parameter(torch.zeros(1))\nmodel = nn"
    )
    report = reported(project, beside.replace("ddp(inputs)", "ddp(inputs) + other"))
    (found,) = report["coverage"]["unjudged_gradients"]
    assert (found["unknown"], found["taken"]) == (1, 3)
    assert (report["verdict"], report["findings"]) == ("inconclusive", [])


BESIDE = """
import torch.distributed.nn

def summed(x):
    dist.all_reduce(x)
    return x

def first(x):
    dist.broadcast(x, 0)
    return x

class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.ops.aten.mul(x, 2.0)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2.0

unsaid = torch.randn(4)
teacher = nn.Linear(6, 1).requires_grad_(False)
picked = unsaid[teacher.weight[0, :4] > 0]
mean = torch.zeros(())
model = nn"""


@pytest.mark.parametrize(
    ("goal", "source"),
    [
        ("teacher(inputs.relu())", "parameters"),
        ("targets + teacher.weight.sum() * 0.5", "parameters"),
        ("targets + summed(unsaid.mean())", "what all_reduce exchanges"),
        ("targets + mean.copy_(summed(unsaid.mean()))", "what all_reduce exchanges"),
        ("targets + torch.stack(dist.nn.all_gather(unsaid)).mean()", "what all_gather exchanges"),
        ("targets + Fused.apply(ddp(inputs))", "what Fused makes"),
        ("targets + unsaid.mean()", ""),
        ("targets + first(unsaid.mean())", ""),
        ("targets + 0 * summed(inputs.mean())", ""),
    ],
)
def test_a_loss_that_rests_on_what_has_no_type_leaves_no_verdict(project, goal, source):
    """Data alone is not meant: whose it is, is said of what the model is called with."""
    report = reported(project, DDP.replace("\nmodel = nn", BESIDE).replace("(inputs), targets", f"(inputs), {goal}"))
    assert report["verdict"] == ("inconclusive" if source else "clean")
    (*_, said) = report["coverage"]["unjudged_losses"] or [""]
    assert said.partition(", which rests on ")[2].partition(" without a type (train.py:")[0] == source


def test_what_is_added_up_to_be_shown_is_no_part_of_the_loss(project):
    shown = DDP.replace("    optimizer.zero", "    shown = torch.ones(1); dist.all_reduce(shown)\n    optimizer.zero")
    report = reported(project, shown)
    assert (report["verdict"], report["coverage"]["unjudged_losses"]) == ("clean", [])


@pytest.mark.parametrize("call", ["ddp.module(made)", "nn.Softmax(-1)(made)"], ids=["made by others", "a function"])
def test_what_is_no_data_stays_without_a_type(project, call):
    """What another part has made, and what a module without parameters gets."""
    source = DDP + f"made = torch.randn(2, 6).requires_grad_('ddp' in {call!r})\n{call}\n"
    source += "import shardwise\nassert not shardwise.has_local_type(made)\n"
    assert reported(project, source)["verdict"] == "clean"


def test_where_no_parameter_and_no_input_has_a_type_there_is_no_verdict_but_one_line_about_them(project):
    done = project.check_source(PLAIN, "--mesh", "dp=2", typed=False)
    assert done.exit_code == 3, done.stdout
    assert done.stdout.splitlines()[-1].startswith("inconclusive; ")
    assert "without a type: 2 of 2 parameters and 1 of 1 input" in done.stdout
    assert "shardwise infer train.py --mesh dp=2 --write" in done.stdout


def test_what_forward_says_of_its_arguments_and_its_parameters_is_a_type_of_them(project):
    """Where it says nothing of one of them, that one has none."""
    says = """
    import torch
    from torch import nn
    from shardwise import R, V, assert_type

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            x = assert_type(x, {"dp": V})
            return x * assert_type(self.weight, {"dp": R})

    Product()(torch.randn(4))
    """
    for source, typed in ((says, (1, 1)), (says.replace('x = assert_type(x, {"dp": V})', ""), (1, 0))):
        done = project.check_source(source, "--mesh", "dp=2", "--format", "json", typed=False)
        report = json.loads(done.stdout)
        assert (report["coverage"]["typed_parameters"], report["coverage"]["typed_inputs"]) == typed
        assert report["coverage"]["parameters"] == report["coverage"]["inputs"] == 1
        assert report["verdict"] == ("clean" if all(typed) else "inconclusive")


def test_inputs_alone_are_no_verdict_about_the_gradients_of_parameters_that_nobody_typed(project):
    """No sum of gradients is missed where no gradient has a type."""
    report = reported(project, DDP.replace("ddp = DistributedDataParallel(model)", "ddp = model"))
    assert report["coverage"] == {
        "typed_parameters": 0,
        "parameters": 2,
        "typed_inputs": 1,
        "inputs": 1,
        "unjudged_axes": [],
        "own_data": [],
        "unjudged_gradients": [],
        "unjudged_losses": [],
        "says_types": False,
        "refused_globally": [],
        "own_elements": [],
        "own_reductions": [],
        "constants_read": [],
    }
    assert (report["verdict"], report["exit_code"], report["findings"]) == ("inconclusive", 3, [])


BOTH = """
import shardwise
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
funcol = torch.distributed._functional_collectives
dp, tp = mesh.get_group("dp"), mesh.get_group("tp")

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=tp)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Half(nn.Linear):
    def forward(self, x):
        return Sum.apply(super().forward(x))

model = DistributedDataParallel(Half(6, 4, bias=False), process_group=dp)
x = shardwise.assert_type(torch.randn(2, 6), {dp: shardwise.V})
model(x).mean().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
"""


@pytest.mark.parametrize(
    ("old", "new", "unjudged"),
    [
        ("", "", ["tp"]),
        ("Sum.apply(super().forward(x))", "super().forward(x)", []),
        ("dist.all_reduce(x, group=tp)", "dist.send(x, 1, group=tp)", []),
        (
            "        return Sum.apply(",
            "        dist.all_reduce(torch.ones(1, dtype=int), group=tp)\n        return (",
            [],
        ),
        (
            "Sum.apply(super().forward(x))",
            "super().forward(x) / funcol.all_reduce(x.detach().square().sum(), 'sum', dp)",
            [],
        ),
        ("model(x", "shardwise.assert_type(model.module.weight, {tp: 'S(1)'}); model(x", []),
    ],
    ids=["sum over tp", "no sum", "a message", "a count", "a sum over dp", "typed along tp"],
)
def test_what_is_exchanged_over_an_axis_without_types_leaves_no_verdict(project, old, new, unjudged):
    """``DistributedDataParallel`` types what it wraps along dp, which says nothing of sums over tp.

    A message is no sum; but nobody knows the type of what a function makes that sends one.
    """
    report = reported(project, BOTH.replace(old, new, 1).replace("'S(1)'", "shardwise.S(1)"))
    assert report["coverage"]["unjudged_axes"] == unjudged
    is_judged = not unjudged and "dist.send" not in new
    rests = ["what Sum makes" in one for one in report["coverage"]["unjudged_losses"]]
    assert rests == ([] if is_judged else [True])
    assert (report["verdict"], report["findings"]) == ("clean" if is_judged else "inconclusive", [])


def test_the_axis_that_was_not_judged_is_named(project):
    said = project.check_source(BOTH, "--world-size", "4", typed=False)
    assert said.exit_code == 3
    assert "not judged: what is exchanged over tp: no type says what it, or any parameter, is there\n" in said.stdout
    assert "shardwise infer train.py --mesh" in said.stdout


PENALTY = DDP.replace(
    "    nn.functional.mse_loss",
    """\
    inputs.requires_grad_()
    (slope,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    with torch.no_grad():
        ddp(inputs)
    slope.square().sum().backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
    nn.functional.mse_loss""",
)


def test_a_backward_pass_of_a_forward_that_went_past_the_wrapper_is_not_averaged(project):
    """What the reducer has averaged once, it averages again only behind another forward of the wrapper."""
    assert reported(project, PENALTY)["findings"] == []
    report = reported(project, PENALTY.replace("dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)", "pass"))
    assert [finding["code"] for finding in report["findings"]] == ["SW608"]


def test_a_reducer_averages_what_every_head_of_a_model_sends_back(project):
    """Two backward passes behind one forward, of parameters that have nothing to do with each other."""
    source = DDP.replace("nn.Linear(6, 1)", "Heads()")
    source = source.replace("mse_loss(ddp(inputs), targets).backward()", "mse_loss(first, targets).backward()")
    source = source.replace("    nn.functional", "    first, second = ddp(inputs)\n    nn.functional").replace(
        "    optimizer.step()", "    second.square().mean().backward()\n    optimizer.step()"
    )
    heads = """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 1), nn.Linear(6, 1)

    def forward(self, x):
        return self.first(x), self.second(x)

dist.init"""
    assert reported(project, source.replace("\ndist.init", heads, 1))["findings"] == []


@pytest.mark.parametrize(
    ("gradients", "verdict"),
    [("torch.autograd.grad(loss, [w])[0]", "inconclusive"), ("torch.ones(8) * rank", "clean")],
    ids=["of weights that nobody has typed", "numbers of the rank"],
)
def test_what_one_exchange_leaves_behind_says_nothing_of_what_it_was_given(project, gradients, verdict):
    """The parts that a rank gets have a type, whatever was summed: adding them up once more proves nothing."""
    source = f"""
        import torch
        import torch.distributed as dist

        dist.init_process_group()
        rank, world = dist.get_rank(), dist.get_world_size()
        w = torch.randn(8, requires_grad=True)
        loss = (torch.randn(8) * w).square().mean()
        own = torch.empty(8 // world)
        dist.reduce_scatter(own, list(({gradients}).chunk(world)))
        squares = own.square().sum()
        dist.all_reduce(squares)
    """
    report = reported(project, source)
    assert (report["verdict"], report["findings"]) == (verdict, [])
    assert bool(report["coverage"]["unjudged_axes"]) is (verdict == "inconclusive")


def test_a_program_without_modules_that_declares_nothing_is_not_judged_by_the_number_of_its_rank(project):
    done = project.check_source(
        """
        import torch
        import torch.distributed as dist

        dist.init_process_group()
        rows = torch.arange(16.0).view(8, 2)
        own = rows[dist.get_rank() :: dist.get_world_size()]
        start = own + 1
        total = torch.randn(2, 2) @ torch.randn(2, 2)
        dist.all_reduce(total)
        print(total.sum())
        """,
        typed=False,
    )
    assert done.exit_code == 3, done.stdout
    assert "without a type: most of what the program works on" in done.stdout


def test_in_a_world_of_one_rank_there_is_nothing_to_type(project):
    done = project.check_source(PLAIN, "--world-size", "1", typed=False)
    assert "without a type" not in done.stdout


MESH_ALONE = """\
from torch.distributed.device_mesh import init_device_mesh

init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
"""


def test_what_torch_does_for_itself_is_neither_checked_nor_passed_over(project):
    done = project.check_source(MESH_ALONE, "--mesh", "dp=2", typed=False)
    assert done.exit_code == 2, done.stdout
    assert "0 operations checked on mesh" in done.stdout


PARTLY = """\
import torch
import shardwise as spmd

x = spmd.assert_type(torch.randn(4, 4), {"dp": spmd.R})
layer = torch.nn.Linear(4, 4)
y = layer(x * 2)
z = torch.sin(y) + \\
    torch.ones(4)
"""


def test_calls_that_were_not_checked_are_listed_by_the_line_of_the_program(project):
    script = project.write(PARTLY)
    said = project.check(script, "--mesh", "dp=2", "--show", "unchecked").stdout
    block = said[said.index("not checked:") :].splitlines()[1:4]
    assert [line.split(" (")[0].strip() for line in block] == ["linear", "sin", "add"]
    assert [line.split(":")[1] for line in block] == ["6", "7", "7"]
    assert "not checked:" not in project.check(script, "--mesh", "dp=2").stdout
    report = json.loads(project.check(script, "--mesh", "dp=2", "--format", "json").stdout)
    assert (report["checked_ops"], report["unchecked_ops"]) == (1, 3)
    assert [one["what"] for one in report["unchecked"]] == ["linear", "sin", "add"]


BY_HAND = """
with set_current_mesh(mesh):
    w = assert_type(torch.randn(8, 4), {"dp": R, "tp": %s}).requires_grad_()
    x = assert_type(torch.randn(3, 8), {"dp": V, "tp": R})
    loss = (x @ w).square().mean()
    loss.backward()
    torch.distributed.all_reduce(w.grad, group=mesh.get_group("dp"))
    torch.optim.SGD([w], lr=0.1).step()
"""


@pytest.mark.parametrize("weight", ["I", "V"])
def test_each_rank_may_start_from_its_own_loss_where_no_parameter_wants_the_whole(project, weight):
    done = project.check_source(BY_HAND % weight)
    assert done.exit_code == 0, done.stdout
    assert "SW602" in project.check_source(BY_HAND % weight, "--strict").stdout


WHOLE = """
with set_current_mesh(mesh):
    norm = assert_type(torch.randn(8), {"dp": R, "tp": I}).requires_grad_()
    w = assert_type(torch.randn(8, 4), {"dp": R, "tp": V}).requires_grad_()
    x = assert_type(torch.randn(3, 8), {"dp": V, "tp": I})
    loss = (convert(x * norm, "tp", src=I, dst=R) @ w).square().mean()
    loss.backward()
"""


def test_a_loss_that_was_not_summed_is_none_for_a_parameter_that_is_invariant(project):
    said = project.check_source("from shardwise import convert\n" + WHOLE).stdout
    assert "SW602 varying-loss: backward starts from loss, which varies over tp" in said


def test_findings_call_groups_and_meshes_as_the_program_does(project):
    groups = """
    import torch
    import torch.distributed as dist
    from shardwise import P, assert_type

    dist.init_process_group("gloo")
    TENSOR = dist.new_group([0, 1, 2])
    x = assert_type(torch.randn(4), {TENSOR: P})
    torch.relu(x)
    """
    said = project.check_source(groups, "--world-size", "6", typed=False).stdout
    assert "relu needs complete values, but x is still a partial sum over TENSOR" in said
    assert "all_reduce(x, TENSOR, src=P, dst=R) before relu" in said
    assert "MeshAxis" not in said
    owing = "".join(line for line in BY_HAND.splitlines(keepends=True) if "all_reduce" not in line) % "I"
    said = project.check_source(f"grid = mesh\ndel mesh\n{owing.replace('mesh(mesh)', 'mesh(grid)')}").stdout
    assert 'dist.all_reduce(p.grad, group=grid.get_group("dp")) before it' in said
    nameless = """
    import torch
    import torch.distributed as dist
    from shardwise import R, V, assert_type, set_current_mesh

    dist.init_process_group("gloo")
    with set_current_mesh(dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))):
        w = assert_type(torch.randn(8, 4), {"dp": R}).requires_grad_()
        (assert_type(torch.randn(3, 8), {"dp": V}) @ w).square().mean().backward()
        torch.optim.SGD([w], lr=0.1).step()
    """
    said = project.check_source(nameless, "--world-size", "2", typed=False).stdout
    assert "dist.all_reduce(p.grad, group=dist.group.WORLD) before it" in said, said


@pytest.mark.parametrize("targets", ["torch.arange(32.0)[:, None]", "torch.zeros(32, 1)", "torch.eye(32)[:, :1]"])
def test_a_batch_of_constants_is_dealt_out_like_any_other(project, targets):
    """Labels of a data set may be made of nothing but numbers: a rank has those of its own samples."""
    source = DDP.replace("torch.randn(32, 1)", targets).replace("ddp(inputs)", "ddp(inputs * (1 + targets.cos()))")
    report = reported(project, source, "--global")
    assert (report["verdict"], report["findings"], report["lost"]) == ("clean", [], [])
