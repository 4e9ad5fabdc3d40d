"""The type of ``.grad`` after backward, what the program then does to it, and what a parameter owes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.diagnosis.function_findings import last_return
from shardwise.checker.gradients.gradient_types import dual
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.diagnostics.syntax import node_at, source_of
from shardwise.interop.autograd.gradients import gradient_type, undischarged
from shardwise.worlds.world import run_processes

from .helpers import make, place, refused


def backward(x: torch.Tensor, letter: str) -> None:
    """Backward from a loss of which ``x`` with placement ``letter`` on tp is a factor."""
    x = spmd.reinterpret(x, "tp", src=R, dst=V, expert_mode=True) if letter == "R" else x
    loss = x.sum()
    (spmd.reinterpret(loss, "tp", src=V, dst=P) if letter in "RV" else loss).backward()


@pytest.mark.parametrize(("letter", "dual"), [("R", "P"), ("I", "I"), ("V", "V"), ("P", "R")])
def test_grad_has_the_dual_type(tp_mesh: Any, letter: str, dual: str) -> None:
    x = make(letter, grad=True)
    with typecheck():
        backward(x, letter)
        assert place(x.grad) == dual
    assert gradient_type(x) is x.grad._shardwise.current()
    assert undischarged(x) == ({spmd.normalize_axis("tp"): P} if dual == "P" else {})


def test_a_shard_has_a_shard_for_its_gradient(tp_mesh: Any) -> None:
    x = spmd.assert_type(torch.randn(4, 4, requires_grad=True), {"tp": S(1)})
    with typecheck():
        backward(x, "V")
        assert str(spmd.typeof(x.grad)) == "f32[4, 4@tp]"


def test_a_tensor_inside_the_graph_has_a_typed_gradient_if_it_retains_one(tp_mesh: Any) -> None:
    x = make("V", grad=True)
    with typecheck():
        y = spmd.all_gather(x, "tp", src=S(0), dst=R)
        y.retain_grad()
        spmd.reinterpret(y * make("V", 16, 4), "tp", src=V, dst=P).sum().backward()
        assert place(y.grad) == "P"
        assert place(x.grad) == "V"


@pytest.mark.parametrize("start", [lambda y, x: y.backward(), lambda y, x: torch.autograd.backward(y, inputs=[x])])
def test_every_spelling_of_backward_types_the_leaves(tp_mesh: Any, start: Any) -> None:
    x = make("V", grad=True)
    with typecheck():
        start(spmd.reinterpret(x.sum(), "tp", src=V, dst=P), x)
        assert place(x.grad) == "V"


def unknown_because_untyped() -> torch.Tensor:
    x = torch.randn(4, 4, requires_grad=True)
    with typecheck("permissive"):
        x.sum().backward()
    return x


def unknown_because_unchecked() -> torch.Tensor:
    x = make("R", grad=True)
    spmd.reinterpret(x, "tp", src=R, dst=V, expert_mode=True).sum().backward()
    return x


def unknown_because_paused() -> torch.Tensor:
    x = make("R", grad=True)
    with typecheck():
        y = spmd.reinterpret(x, "tp", src=R, dst=V, expert_mode=True).sum()
        with spmd.no_typecheck():
            y.backward()
    return x


def unknown_because_added_to_unseen() -> torch.Tensor:
    x = unknown_because_unchecked()
    with typecheck():
        backward(x, "R")
    return x


UNKNOWN = [
    unknown_because_untyped,
    unknown_because_unchecked,
    unknown_because_paused,
    unknown_because_added_to_unseen,
    lambda: make("R", grad=True),
]


@pytest.mark.parametrize("made", UNKNOWN)
def test_what_nobody_followed_is_unknown_and_owes_nothing(tp_mesh: Any, made: Callable[[], torch.Tensor]) -> None:
    x = made()
    assert str(gradient_type(x)) == "{} (unknown)"
    assert undischarged(x) == {}
    with typecheck("permissive"):
        torch.optim.SGD([x], 0.1).step()


@pytest.mark.parametrize("made", UNKNOWN[1:4])
def test_what_nobody_followed_is_no_pass_where_types_are_asked_for(
    tp_mesh: Any, made: Callable[[], torch.Tensor]
) -> None:
    x = made()
    with typecheck(), refused("SW615"):
        torch.optim.SGD([x], 0.1).step()


def summed(x: torch.Tensor, group: Any) -> None:
    dist.all_reduce(x.grad, group=group)


WAYS: list[Callable[[torch.Tensor, Any], None]] = [
    summed,
    lambda x, group: dist.all_reduce(x.grad.data, group=group),
    lambda x, group: dist.all_reduce(x.grad.view(-1), group=group),
    lambda x, group: dist.all_reduce(x.grad, op=dist.ReduceOp.AVG, group=group),
    lambda x, group: dist.all_reduce(x.grad, group=group, async_op=True).wait(),
    lambda x, group: setattr(x, "grad", spmd.all_reduce(x.grad, "tp", src=P, dst=R)),
    lambda x, group: setattr(x, "grad", spmd.all_reduce(x.grad / 4, "tp", src=P, dst=I)),
]


@pytest.mark.parametrize("sum_of", WAYS)
def test_a_sum_discharges_a_gradient_whichever_way_it_is_made(tp_mesh: Any, sum_of: Any) -> None:
    x = make("R", grad=True)
    with typecheck():
        backward(x, "R")
        sum_of(x, tp_mesh.get_group("tp"))
        assert undischarged(x) == {}
        assert place(x.grad) in ("R", "I")
        with refused("SW605", "tp"):
            summed(x, tp_mesh.get_group("tp"))


@pytest.mark.parametrize("letter", ["V", "I"])
def test_a_gradient_that_owes_no_sum_must_not_be_summed(tp_mesh: Any, letter: str) -> None:
    x = make(letter, grad=True)
    with typecheck():
        backward(x, letter)
        with refused("SW605", "x"):
            summed(x, tp_mesh.get_group("tp"))


@pytest.mark.parametrize("src", [V, P])
@pytest.mark.parametrize("op", [spmd.all_reduce, spmd.reduce_scatter], ids=lambda op: op.__name__)
def test_a_gradient_of_what_varies_is_no_addend_for_typed_sums_either(tp_mesh: Any, op: Any, src: Any) -> None:
    """V is read as P where a sum is asked for; a gradient that varies is that of this rank's piece of the parameter."""
    x = make("V", grad=True)
    with typecheck():
        backward(x, "V")
        squares = x.grad.square().sum()  # type: ignore[union-attr]
        assert place(spmd.all_reduce(squares, "tp", src=src, dst=R)) == "R"
        with refused("SW605", "x"):
            op(x.grad, "tp", src=src, dst=R if op is spmd.all_reduce else S(0))


def test_a_gradient_that_the_program_has_made_is_what_it_was_made_of(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    with typecheck():
        for _ in range(2):  # what the gradient was before has nothing to do with it
            x.grad = spmd.assert_type(torch.ones_like(x), {"tp": V}) * 2
            assert place(x.grad) == "V"
            dist.all_reduce(x.grad)
            assert place(x.grad) == "R"
            torch.optim.SGD([x], 0.1).step()
        x.grad = spmd.assert_type(torch.ones_like(x), {"tp": V})
        with refused("SW608"):
            torch.optim.SGD([x], 0.1).step()


def test_a_value_made_of_gradients_may_be_summed(tp_mesh: Any) -> None:
    x = make("V", grad=True)
    with typecheck():
        backward(x, "V")
        squares = x.grad.square().sum()
        dist.all_reduce(squares, group=tp_mesh.get_group("tp"))
        assert place(squares) == "R"


def test_an_average_of_equal_values_is_no_mistake(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    with typecheck():
        backward(x, "R")
        summed(x, tp_mesh.get_group("tp"))
        dist.all_reduce(x.grad, op=dist.ReduceOp.AVG, group=tp_mesh.get_group("tp"))
        assert place(x.grad) == "R"


def test_a_second_backward_adds_addends_to_addends(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    with typecheck():
        backward(x, "R")
        backward(x, "R")
        assert place(x.grad) == "P"


def test_a_second_backward_must_not_add_to_a_sum(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    with typecheck():
        backward(x, "R")
        summed(x, tp_mesh.get_group("tp"))
        before = x.grad.clone()
        with refused("SW604", "x", "zero_grad"):
            backward(x, "R")
    assert torch.equal(x.grad, before)


@pytest.mark.parametrize("zero", [lambda o: o.zero_grad(), lambda o: o.zero_grad(set_to_none=False), lambda o: None])
def test_what_comes_to_a_sum_behind_its_step_is_refused_where_it_is_used(tp_mesh: Any, zero: Any) -> None:
    """The loss of a generator reaches its critic, whose gradients are zeroed before the next step, or not."""
    x = make("R", grad=True)
    critic, group = torch.optim.SGD([x], 0.1), tp_mesh.get_group("tp")
    collector = Collector()
    with checking(collect=collector):
        for _ in range(2):
            backward(x, "R")
            summed(x, group)
            critic.step()
            backward(x, "R")
            zero(critic)
    kept = x.grad is not None and bool(x.grad.any())
    assert [one.code for one in collector.result().findings] == (["SW604"] if kept else [])


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_cleared_gradient_takes_a_new_one(tp_mesh: Any, set_to_none: bool) -> None:
    x = make("R", grad=True)
    optimizer = torch.optim.SGD([x], 0.1)
    with typecheck():
        for _ in range(3):
            backward(x, "R")
            assert place(x.grad) == "P"
            summed(x, tp_mesh.get_group("tp"))
            optimizer.zero_grad(set_to_none=set_to_none)


def test_a_run_that_collects_tells_one_mistake_once(tp_mesh: Any) -> None:
    collector = Collector()
    x, y = make("R", grad=True), make("R", grad=True)
    with checking(collect=collector):
        for tensor in (x, y):
            backward(tensor, "R")
            for _ in range(3):
                summed(tensor, tp_mesh.get_group("tp"))
        torch.optim.SGD([x, y], 0.1).step()
    assert [(finding.code, finding.count) for finding in collector.result().findings] == [("SW605", 2)]


SEEDS = [("V", "V", ""), ("V", "R", ""), ("I", "R", ""), ("P", "R", ""), ("V", "P", "SW606"), ("R", "P", "")]
SEEDS += [("R", "R", "SW606"), ("I", "V", "SW606"), ("P", "P", "SW606"), ("I", "P", "SW606")]


@pytest.mark.parametrize(("letter", "given", "code"), SEEDS)
def test_a_gradient_given_by_the_caller_is_of_the_dual_type(tp_mesh: Any, letter: str, given: str, code: str) -> None:
    x, seed = make(letter, grad=True), make(given)
    with typecheck():
        y = x * 2
        if code:
            with refused(code, "y", "seed"):
                y.backward(seed)
        else:
            y.backward(seed)
            assert gradient_type(x) is dual(x._shardwise.current())


def test_ones_are_the_gradient_of_nothing_that_is_summed_over_ranks(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    with typecheck(), refused("SW606", "4 times too much"):
        (x * 2).backward(torch.ones(4, 4))


def test_gradients_of_one_bucket_come_out_as_they_went_in(mesh: Any) -> None:
    x = {letter: nn.Parameter(torch.randn(4)) for letter in "VIR"}
    for letter, parameter in x.items():
        spmd.assert_type(parameter, {"dp": R, "tp": spmd.PerMeshAxisLocalSpmdType(letter)})
    with typecheck():
        data = spmd.assert_type(torch.randn(4), {"dp": V, "tp": V})
        loss = spmd.all_reduce((x["V"] * x["R"] * data).sum(), "tp", src=V, dst=I)
        loss = loss + (x["I"] * spmd.assert_type(torch.randn(4), {"dp": V, "tp": I})).sum()
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        bucket = torch.cat([parameter.grad.view(-1) for parameter in x.values()])
        assert place(bucket, "dp") == "P"
        dist.all_reduce(bucket, group=mesh.get_group("dp"))
        for parameter, piece in zip(x.values(), bucket.split(4), strict=True):
            parameter.grad.copy_(piece)
        found = {letter: (place(p.grad, "dp"), place(p.grad, "tp")) for letter, p in x.items()}
        assert found == {"V": ("R", "V"), "I": ("R", "I"), "R": ("R", "P")}


class Mixed(nn.Module):
    """Weights that are split, invariant and replicate over tp, drawn alike on every rank and then cut."""

    def __init__(self, tp: int, rank: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        rows, bias, norm = (torch.randn(*shape, generator=generator).double() for shape in ((8, 4), (4,), (4,)))
        self.rows = nn.Parameter(rows.chunk(tp)[rank].clone())
        self.bias, self.norm = nn.Parameter(bias), nn.Parameter(norm)
        for parameter, own in ((self.rows, S(0)), (self.bias, I), (self.norm, R)):
            spmd.assert_type(parameter, {"dp": R, "tp": own})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pieces = spmd.convert(x, "tp", src=I, dst=S(1))
        whole = spmd.all_gather((pieces * self.norm).sin(), "tp", src=S(1), dst=R)
        loss = spmd.all_reduce((whole @ self.rows.t()).square().sum(), "tp", src=V, dst=I)
        return spmd.reinterpret(loss + (x * self.bias).cos().sum(), "dp", src=V, dst=P)


def gradients_of(dp: int, tp: int) -> dict[str, tuple[torch.Tensor, torch.Tensor, str, str]]:
    """For each weight: the gradient after backward and after what the types say is owed, with the types before."""
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    data = torch.randn(4, 8, 4, generator=torch.Generator().manual_seed(1)).double()
    told = {}
    with spmd.set_current_mesh(mesh), typecheck():
        model = Mixed(tp, mesh.get_local_rank("tp"))
        x = data.chunk(dp)[mesh.get_local_rank("dp")].clone()
        model(spmd.assert_type(x, {"dp": S(0), "tp": I})).backward()
        for name, parameter in model.named_parameters():
            first, types = parameter.grad.clone(), (place(parameter.grad, "dp"), place(parameter.grad, "tp"))
            for axis in undischarged(parameter):
                dist.all_reduce(parameter.grad, group=mesh.get_group(str(axis)))
            assert undischarged(parameter) == {}
            told[name] = (first.detach(), parameter.grad.detach(), *types)
        torch.optim.SGD(model.parameters(), 0.1).step()
    return told


@pytest.mark.processes
def test_what_the_types_say_is_owed_makes_the_gradients_of_one_device() -> None:
    (whole,) = run_processes(gradients_of, 1, 1, 1)
    ranks = run_processes(gradients_of, 4, 2, 2)
    assert {name: told[2:] for name, told in ranks[0].items()} == {
        "rows": ("P", "V"),
        "bias": ("P", "I"),
        "norm": ("P", "P"),
    }
    for name, (_, expected, *_) in whole.items():
        for rank, told in enumerate(ranks):
            wanted = expected.chunk(2)[rank % 2] if name == "rows" else expected
            torch.testing.assert_close(told[name][1], wanted)
            assert not torch.allclose(told[name][0], wanted), f"{name}: the sum changes nothing"
        if name != "rows":
            assert all(torch.equal(told[name][1], ranks[0][name][1]) for told in ranks)


def test_a_norm_of_split_gradients_is_told_with_the_one_that_counts_every_piece(tp_mesh: Any) -> None:
    """Under global types the norm is pending, and what divides by it is refused, before anything is scaled."""
    rows = spmd.assert_type(nn.Parameter(torch.randn(4, 4)), {"tp": S(0)})
    collector = Collector()
    with checking(local=False, collect=collector):
        spmd.sum(rows * rows, (0, 1), out_partial_axes="tp").backward()
        nn.utils.clip_grad_norm_([rows], 1.0)
    (finding,) = collector.result().findings
    assert finding.code == "SW112"
    assert any("shardwise.train.clip_grad_norm_" in line for line in finding.help)


def test_gradients_that_torch_reads_go_by_their_place_and_by_the_call_of_the_program(tp_mesh: Any) -> None:
    weight = spmd.assert_type(nn.Parameter(torch.randn(4, 4)), {"tp": R})
    piece = spmd.assert_type(torch.randn(4, 4), {"tp": V})
    collector = Collector()
    with checking(collect=collector):
        spmd.all_reduce((weight * piece).sum(), "tp", src=V, dst=I).backward()
        nn.utils.clip_grad_norm_([weight], 1.0)
    (finding,) = collector.result().findings
    assert finding.code == "SW112"
    assert finding.message.startswith("clip_grad_norm_: ")
    assert "but p.grad is still a partial sum over tp" in finding.message


def test_a_lambda_that_is_at_fault_is_marked_where_its_value_stands() -> None:
    function = staticmethod(lambda ctx, gradient: gradient.repeat(2, 1)).__wrapped__
    place = last_return(function.__code__)
    assert place is not None
    assert source_of(node_at(place) or ast.parse(""), __file__) == "gradient.repeat(2, 1)"


def averaged_later(factor: str) -> None:
    """A program with a parameter whose gradient is equal on all ranks, and is summed like the others."""
    group = dist.group.WORLD
    model = torch.nn.Linear(3, 2)
    for parameter in model.parameters():
        spmd.assert_type(parameter, {"tp": I})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(spmd.assert_type(torch.ones(4, 3), {"tp": I})).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=group)
    for parameter in model.parameters():
        if factor == "the number of ranks":
            parameter.grad /= dist.get_world_size(group)
        elif factor == "an average of that":
            parameter.grad = parameter.grad / dist.get_world_size()
        elif factor == "its square":
            parameter.grad /= dist.get_world_size() ** 2
        elif factor == "of one of them" and parameter is model.weight:
            parameter.grad /= dist.get_world_size()
    optimizer.step()
    model(spmd.assert_type(torch.ones(4, 3), {"tp": I})).sum().backward()


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize(
    ("factor", "names"),
    [
        ("the number of ranks", []),
        ("an average of that", []),
        ("its square", ["weight", "bias"]),
        ("of one of them", ["bias"]),
        ("nothing", ["weight", "bias"]),
    ],
)
def test_a_sum_that_is_not_owed_is_right_if_divided_before_the_step(
    tp_mesh: Any, local: bool, factor: str, names: list[str]
) -> None:
    collector = Collector()
    with checking(collect=collector, local=local, strict=False):
        averaged_later(factor)
    found = collector.result().findings
    assert [(one.code, one.count) for one in found] == ([("SW605", len(names))] if names else [])
    source = Path(__file__).read_text().splitlines()
    for one in found:
        assert one.location is not None
        assert "dist.all_reduce(parameter.grad" in source[one.location.line - 1]
        assert f"the gradient of {names[0]} " in one.message
