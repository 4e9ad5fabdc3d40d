"""What may enter an optimizer, for gradients of every origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.interop.autograd.gradients import undischarged

from .helpers import make, place, refused


@pytest.fixture
def dp(mesh: Any) -> Any:
    with spmd.set_current_mesh(mesh["dp"]):
        yield mesh["dp"]


def linear() -> nn.Linear:
    model = nn.Linear(4, 4)
    spmd.assert_type(list(model.parameters()), {"dp": R})
    return model


def backward(model: nn.Module) -> None:
    x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0)})
    spmd.reinterpret(model(x).square().mean(), "dp", src=V, dst=P).backward()


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, 0.1),
    lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    lambda parameters: torch.optim.AdamW(parameters, fused=True),
    lambda parameters: torch.optim.Adafactor(parameters),
]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
def test_a_pending_sum_does_not_enter(dp: Any, make_optimizer: Any) -> None:
    model = linear()
    optimizer = make_optimizer(model.parameters())
    before = model.weight.detach().clone()
    with typecheck():
        backward(model)
        with refused("SW608", "weight, bias", "dp", "dist.all_reduce"):
            optimizer.step()
        assert torch.equal(model.weight, before)
        optimizer.zero_grad()
        backward(model)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=dp.get_group())
        optimizer.step()
    assert not torch.equal(model.weight, before)


def test_many_parameters_are_one_finding(dp: Any) -> None:
    model = nn.Sequential(*(linear() for _ in range(3)))
    collector = Collector()
    with checking(collect=collector):
        backward(model)
        torch.optim.AdamW(model.parameters()).step()
    (finding,) = collector.result().findings
    assert finding.code == "SW608"
    assert "0.weight, 0.bias, 1.weight and 3 more" in finding.message


def test_every_axis_is_a_finding_of_its_own(mesh: Any) -> None:
    x = spmd.assert_type(nn.Parameter(torch.randn(4)), {"dp": R, "tp": R})
    collector = Collector()
    with checking(collect=collector):
        data = spmd.assert_type(torch.randn(4), {"dp": V, "tp": V})
        loss = spmd.all_reduce((x * data).sum(), "tp", src=V, dst=I)
        spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
        torch.optim.SGD([x], 0.1).step()
    assert [(finding.code, finding.axis) for finding in collector.result().findings] == [
        ("SW608", "dp"),
        ("SW608", "tp"),
    ]


@pytest.mark.parametrize("known", [True, False])
def test_a_wrapper_that_averages_is_advised_where_an_average_is_right(dp: Any, known: bool) -> None:
    """With global types it is known that the loss is the mean of each rank's own rows; else that is the condition."""
    x = spmd.assert_type(nn.Parameter(torch.randn(4)), {"dp": R})
    collector = Collector()
    with checking(collect=collector, local=not known):
        rows = spmd.assert_type(torch.randn(3, 4), {"dp": S(0)})
        loss = (rows @ x).mean()
        (loss if known else spmd.reinterpret(loss, "dp", src=V, dst=P)).backward()
        torch.optim.SGD([x], 0.1).step()
    (finding,) = collector.result().findings
    assert finding.code == "SW608"
    average = 'p.grad /= dist.get_world_size(group=dp.get_group("dp"))'
    mean = "if the loss is the mean of each rank's own samples"
    wrapper = "or DistributedDataParallel or fully_shard over that axis, "
    if known:
        assert finding.help[0].endswith(f"and {average} before it")
        assert finding.help[1] == f"{wrapper}which average while backward runs"
    else:
        assert finding.help[1] == f"and {average} after that, {mean}"
        assert finding.help[2] == f"{wrapper}{mean}: they average while backward runs"


def test_a_gradient_that_only_one_rank_has_summed_does_not_enter(dp: Any) -> None:
    model = linear()
    with typecheck():
        backward(model)
        for parameter in model.parameters():
            dist.reduce(parameter.grad, dst=0, group=dp.get_group())
        with refused("SW608", "differ over dp"):
            torch.optim.SGD(model.parameters(), 0.1).step()


def test_names_that_the_optimizer_knows_are_used(dp: Any) -> None:
    weight = spmd.assert_type(nn.Parameter(torch.randn(4, 4)), {"dp": R})
    optimizer = torch.optim.SGD([("encoder.weight", weight)], 0.1)
    with typecheck():
        x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0)})
        spmd.reinterpret((x @ weight).sum(), "dp", src=V, dst=P).backward()
        with refused("SW608", "encoder.weight"):
            optimizer.step()


def test_the_programs_own_hooks_come_first(dp: Any) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def reduce(*_: Any) -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=dp.get_group())

    with typecheck():
        backward(model)
        handle = optimizer.register_step_pre_hook(reduce)
        optimizer.step()
        handle.remove()
        optimizer.zero_grad()
        backward(model)
        with refused("SW608"):
            optimizer.step()


def test_a_closure_makes_its_gradients_inside(dp: Any) -> None:
    model = linear()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        backward(model)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=dp.get_group())
        return make_loss(model)

    def make_loss(model: nn.Module) -> torch.Tensor:
        return model.weight.detach().square().sum()

    with typecheck():
        optimizer.step(closure)


@pytest.mark.parametrize("by_name", [False, True])
def test_what_a_closure_makes_is_judged_behind_it(by_name: bool, dp: Any) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        backward(model)
        return model.weight.detach().sum()

    with typecheck(), refused("SW608", "after backward, in the closure"):
        optimizer.step(closure=closure) if by_name else optimizer.step(closure)


def test_the_gate_is_gone_when_nobody_checks(dp: Any) -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with typecheck():
        backward(model)
    optimizer.step()
    assert not optimizer._optimizer_step_pre_hooks
    assert undischarged(model.weight)


def test_the_addend_of_a_hand_written_step_is_called_a_gradient(dp: Any) -> None:
    model = linear()
    with typecheck():
        backward(model)
        with refused("SW113", "model.weight.grad is a gradient", "dist.all_reduce(model.weight.grad"):
            model.weight.data.add_(model.weight.grad, alpha=-0.1)


def test_fully_shard_sums_over_its_own_axis_only(mesh: Any) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    with typecheck():
        model = nn.Linear(4, 4, bias=False)
        spmd.assert_type(model.weight, {"tp": R})
        fsdp.fully_shard(model, mesh=mesh["dp"])
        optimizer = torch.optim.AdamW(model.parameters())
        for summed in (True, False):
            x = spmd.assert_type(torch.randn(2, 4), {"dp": V, "tp": V})
            loss = spmd.all_reduce(model(x).square().sum(), "tp", src=V, dst=I)
            spmd.reinterpret(loss, "dp", src=V, dst=P).backward()
            assert [str(axis) for axis in undischarged(model.weight)] == ["tp"]
            if summed:
                dist.all_reduce(model.weight.grad.to_local(), group=mesh.get_group("tp"))
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            else:
                with refused("SW608", "weight", "tp"):
                    optimizer.step()


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("letters", ["VI", "VV"])
def test_torchs_clipping_counts_one_ranks_pieces(tp_mesh: Any, foreach: bool, letters: str) -> None:
    x, y = (make(letter, grad=True) for letter in letters)
    with typecheck():
        for tensor, letter in ((x, letters[0]), (y, letters[1])):
            loss = tensor.square().sum()
            (spmd.all_reduce(loss, "tp", src=V, dst=I) if letter == "V" else loss).backward()
        with refused("SW609", "tp", "shardwise.train.clip_grad_norm_"):
            nn.utils.clip_grad_norm_([x, y], 1.0, foreach=foreach)


def test_a_norm_that_counts_all_pieces_may_clip(tp_mesh: Any) -> None:
    x, y = make("V", grad=True), make("I", grad=True)
    with typecheck():
        (spmd.all_reduce(x.square().sum(), "tp", src=V, dst=I) + y.square().sum()).backward()
        squares = spmd.all_reduce(x.grad.square().sum(), "tp", src=V, dst=R) + y.grad.square().sum()
        nn.utils.clip_grads_with_norm_([x, y], 1.0, squares.sqrt())
        assert [place(x.grad), place(y.grad)] == ["V", "R"]
        torch.optim.SGD([x, y], 0.1).step()


def test_each_addend_may_be_searched_for_infinities(dp: Any) -> None:
    model = linear()
    with typecheck():
        backward(model)
        found = torch.stack([parameter.grad.isinf().any() for parameter in model.parameters()]).any()
        assert place(found, "dp") == "V"
        with refused("SW112"):
            model.weight.grad.abs()


@pytest.mark.parametrize("setting", ["lr", "momentum"])
def test_a_setting_that_differs_between_ranks_makes_equal_parameters_differ(tp_mesh: Any, setting: str) -> None:
    weight = nn.Parameter(torch.randn(4))
    spmd.assert_type(weight, {"tp": I})
    settings: dict[str, Any] = {"lr": 0.1}
    with typecheck():
        optimizer = torch.optim.SGD([weight], **settings | {setting: (dist.get_rank() + 1) * 0.1})
        weight.square().sum().backward()
        with refused("SW617", "weight", f"another {setting} on each rank"):
            optimizer.step()
        optimizer.param_groups[0][setting] = 0.1
        optimizer.step()


def test_what_a_step_makes_of_a_refused_setting_is_no_finding_of_its_own(tp_mesh: Any) -> None:
    weight = nn.Parameter(torch.randn(4))
    spmd.assert_type(weight, {"tp": R})
    found = Collector()
    with checking(local=False, collect=found):
        optimizer = torch.optim.AdamW([weight], lr=(dist.get_rank() + 1) * 0.1, weight_decay=0.1)
        weight.grad = spmd.assert_type(torch.randn(4), {"tp": R})
        optimizer.step()
    assert [finding.code for finding in found.result().findings] == ["SW617"]


LIMITS: dict[str, Callable[[nn.Parameter, Any], object]] = {
    "clip_grad_norm_": lambda weight, number: nn.utils.clip_grad_norm_([weight], number),
    "clip_grad_norm_ takes another max_norm": lambda weight, number: nn.utils.clip_grad_norm_(
        parameters=weight, max_norm=number, norm_type=1.0
    ),
    "clip_grad_value_ takes another clip_value": lambda weight, number: nn.utils.clip_grad_value_(
        iter([weight]), number
    ),
    "ReduceLROnPlateau.step takes another metric": lambda weight, number: torch.optim.lr_scheduler.ReduceLROnPlateau(
        torch.optim.SGD([weight], 0.1)
    ).step(number),
}


@pytest.mark.parametrize("said", LIMITS)
@pytest.mark.parametrize("number", ["item", "detach"])
def test_what_equal_gradients_are_clipped_by_and_steps_go_by_is_equal_too(tp_mesh: Any, said: str, number: str) -> None:
    """What becomes of the ranks otherwise is in the next test."""
    weight = spmd.assert_type(nn.Parameter(torch.randn(4)), {"tp": I})
    own = nn.Parameter(torch.randn(4))
    with typecheck():
        spmd.assert_type(own, {"tp": V})
        kinds = (V, P, R, I) if number == "detach" else (V, R, I)  # a pending sum is not read
        losses = {kind: getattr(spmd.assert_type(torch.tensor(2.0), {"tp": kind}), number)() for kind in kinds}
        spmd.all_reduce(own.square().sum(), "tp", src=V, dst=I).backward()
        weight.square().sum().backward()
        for kind in kinds[:-2]:
            with refused("SW617", said):
                LIMITS[said](weight, losses[kind])
        for kind in (R, I):
            LIMITS[said](weight, losses[kind])
        if "norm" not in said:  # the norm of pieces is another matter
            LIMITS[said](own, losses[V])


@pytest.mark.parametrize("said", LIMITS)
def test_ranks_that_clip_or_schedule_by_numbers_of_their_own_drift_apart(said: str) -> None:
    def trained(rank: int, shares: bool) -> list[float]:
        weight, rate = nn.Parameter(torch.ones(4)), 1.0
        for metric in (1.0, 1.0 + (0 if shares else rank)):
            weight.grad = torch.ones(4)
            if said.startswith("Reduce"):
                optimizer = torch.optim.SGD([weight], rate)
                schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
                schedule.best = 4.0
                schedule.step(metric)
                optimizer.step()
            else:
                LIMITS[said](weight, metric / 4)
                torch.optim.SGD([weight], rate).step()
        return weight.tolist()

    assert trained(0, shares=True) == trained(1, shares=True)
    assert trained(0, shares=False) != trained(1, shares=False)


class Summing(torch.optim.Optimizer):
    """Averages gradients in its own step, by a function of this file."""

    def __init__(self, parameters: Any, group: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.group = group

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * self.terms(parameter.grad)

    def terms(self, gradient: Any) -> Any:
        return averaged(gradient, self.group)


class Forgetful(Summing):
    """Calls a collective, and not for the gradients of vectors."""

    def terms(self, gradient: Any) -> Any:
        return averaged(gradient, self.group) if gradient.ndim > 1 else gradient


class Silent(Summing):
    """Steps with each rank's addend."""

    def terms(self, gradient: Any) -> Any:
        return gradient.clone()


def averaged(gradient: Any, group: Any) -> Any:
    gradient = gradient.clone()
    dist.all_reduce(gradient, group=group)
    return gradient / dist.get_world_size(group)


@pytest.mark.parametrize(("kind", "code"), [(Summing, ""), (Forgetful, "SW113"), (Silent, "SW608")])
def test_a_step_that_sums_by_itself_is_judged_by_what_it_does(dp: Any, kind: Any, code: str) -> None:
    collector = Collector()
    with checking(collect=collector):
        model = linear()
        backward(model)
        kind(model.parameters(), dp.get_group()).step()
    assert {finding.code for finding in collector.result().findings} == ({code} if code else set())
