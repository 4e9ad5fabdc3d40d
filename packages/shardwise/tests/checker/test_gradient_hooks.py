"""Hooks that see gradients: on tensors, after accumulation, on modules; and hooks that nobody can see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker import checking, typecheck
from shardwise.diagnostics.excerpt import source_line
from shardwise.diagnostics.result import Collector
from shardwise.interop.autograd.gradients import gradient_type, undischarged

from .helpers import make, place, refused


def loss_of(*factors: torch.Tensor) -> torch.Tensor:
    """An invariant loss in which replicate and varying ``factors`` are multiplied."""
    product = make("V")
    for factor in factors:
        product = product * factor
    return spmd.all_reduce(product.sum(), "tp", src=V, dst=I)


def summing(gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient


def in_place(gradient: torch.Tensor) -> None:
    dist.all_reduce(gradient)


def by_ours(gradient: torch.Tensor) -> torch.Tensor:
    return spmd.all_reduce(gradient, "tp", src=P, dst=R)


def test_a_hook_sees_the_dual_type(tp_mesh: Any) -> None:
    seen: dict[str, str] = {}
    x = make("R", grad=True)
    with typecheck():
        y = spmd.convert(make("I", grad=True), "tp", src=I, dst=R)
        x.register_hook(lambda gradient: seen.update(x=place(gradient)))
        y.register_hook(lambda gradient: seen.update(y=place(gradient)))
        z = x * y
        z.register_hook(lambda gradient: seen.update(z=place(gradient)))
        product = z * make("V")
        product.register_hook(lambda gradient: seen.update(product=place(gradient)))
        spmd.all_reduce(product.sum(), "tp", src=V, dst=I).backward()
    assert seen == {"x": "P", "y": "P", "z": "P", "product": "V"}


@pytest.mark.parametrize("hook", [summing, in_place, by_ours])
@pytest.mark.parametrize("before_the_check", [False, True])
def test_a_hook_on_a_parameter_may_make_the_sum_it_owes(tp_mesh: Any, hook: Any, before_the_check: bool) -> None:
    x = make("R", grad=True)
    if before_the_check:
        x.register_hook(hook)
    with typecheck():
        if not before_the_check:
            x.register_hook(hook)
        loss_of(x).backward()
        assert place(x.grad) == "R"
        assert undischarged(x) == {}
        torch.optim.SGD([x], 0.1).step()


@pytest.mark.parametrize("hook", [summing, in_place, by_ours])
def test_what_a_hook_sums_is_added_to_what_it_has_summed(tp_mesh: Any, hook: Any) -> None:
    """Micro-batches, each of which the hook sums; one that it leaves alone is a pending sum beside sums."""
    x, leaves_alone = make("R", grad=True), [False, False, True]
    with typecheck():
        x.register_hook(lambda gradient: None if leaves_alone.pop(0) else hook(gradient))
        loss_of(x).backward()
        loss_of(x).backward()
        assert place(x.grad) == "R"
        with refused("SW604", "pending sum"):
            loss_of(x).backward()


@pytest.mark.parametrize("hook", [summing, by_ours])
def test_a_hook_inside_the_graph_must_not(tp_mesh: Any, hook: Any) -> None:
    x = make("I", grad=True)
    with typecheck():
        y = spmd.convert(x, "tp", src=I, dst=R)
        y.register_hook(hook)
        with refused("SW606", hook.__name__, "4 times too much"):
            loss_of(y).backward()


def test_what_a_hook_computes_is_checked(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    with typecheck():
        x.register_hook(lambda gradient: gradient.clamp(-1, 1))
        with refused("SW112", "gradient"):
            loss_of(x).backward()


def test_hooks_of_one_tensor_see_what_the_ones_before_them_left(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    seen = []
    with typecheck():
        x.register_hook(by_ours)
        x.register_hook(lambda gradient: seen.append(place(gradient)))
        loss_of(x).backward()
    assert seen == ["R"]


def test_one_gradient_of_two_tensors_has_two_types(tp_mesh: Any) -> None:
    """The backward of a sum hands the same tensor to both terms."""
    seen = {}
    with typecheck():
        x, y = make("R", grad=True) * 1, make("V", grad=True) * 1
        x.register_hook(lambda gradient: seen.update(x=place(gradient)))
        y.register_hook(lambda gradient: seen.update(y=place(gradient)))
        spmd.all_reduce((x + y).sum(), "tp", src=V, dst=I).backward()
    assert seen == {"x": "P", "y": "V"}


@pytest.mark.parametrize("before_the_check", [False, True])
def test_a_hook_after_accumulation_may_make_the_sum(tp_mesh: Any, before_the_check: bool) -> None:
    x = make("R", grad=True)

    def reduce(parameter: torch.Tensor) -> None:
        dist.all_reduce(parameter.grad)
        parameter.grad.clamp_(-1, 1)

    if before_the_check:
        x.register_post_accumulate_grad_hook(reduce)
    with typecheck():
        if not before_the_check:
            x.register_post_accumulate_grad_hook(reduce)
        loss_of(x).backward()
        assert place(x.grad) == "R"


def test_a_hook_after_accumulation_may_take_the_gradients_of_others(tp_mesh: Any) -> None:
    x, y = make("R", grad=True), make("R", grad=True)
    ready = []

    def reduce(parameter: torch.Tensor) -> None:
        ready.append(parameter)
        if len(ready) == 2:
            for one in ready:
                dist.all_reduce(one.grad)

    with typecheck():
        for parameter in (x, y):
            parameter.register_post_accumulate_grad_hook(reduce)
        loss_of(x, y).backward()
        assert [place(x.grad), place(y.grad)] == ["R", "R"]


def test_an_optimizer_that_steps_in_backward_is_checked(tp_mesh: Any) -> None:
    x = make("R", grad=True)
    optimizer = torch.optim.SGD([x], 0.1)
    with typecheck():
        x.register_post_accumulate_grad_hook(lambda _: optimizer.step())
        with refused("SW608", "x"):
            loss_of(x).backward()


def test_what_a_hook_on_a_node_does_is_not_seen_and_not_judged(tp_mesh: Any) -> None:
    x, y = make("R", grad=True), make("R", grad=True)
    node = x.expand_as(x).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: dist.all_reduce(x.grad))
    with typecheck():
        loss_of(x, y).backward()
        assert str(gradient_type(x)) == "{} (unknown)"
        assert place(y.grad) == "P"


def test_hooks_run_as_always_where_nobody_checks(tp_mesh: Any) -> None:
    seen = []
    x = make("R", grad=True)
    with typecheck():
        x.register_hook(lambda gradient: seen.append(gradient.clamp(-1, 1)))
        y = loss_of(x)
    y.backward()
    assert len(seen) == 1
    assert place(seen[0]) == ""


@pytest.mark.parametrize("pre", [False, True])
def test_a_hook_of_a_module_sees_duals_and_returns_them(tp_mesh: Any, pre: bool) -> None:
    seen = []

    def look(module: Any, *groups: Any) -> Any:
        seen.extend(place(gradient) for group in groups for gradient in group)
        return tuple(gradient * 2 for gradient in groups[0])

    spmd.register_local_backward_hook(look)
    layer = nn.Linear(4, 4, bias=False)
    spmd.assert_type(layer.weight, {"tp": S(0)})
    layer.register_full_backward_pre_hook(look) if pre else layer.register_full_backward_hook(look)
    with typecheck():
        y = layer(make("R", grad=True))
        spmd.all_reduce(y.sum(), "tp", src=V, dst=I).backward()
    assert seen == (["V"] if pre else ["P", "V"])


def test_a_hook_of_a_module_must_not_sum(tp_mesh: Any) -> None:
    @spmd.register_local_backward_hook
    def total(module: Any, gradients_in: Any, gradients_out: Any) -> Any:
        return tuple(summing(gradient) for gradient in gradients_in)

    layer = nn.Linear(4, 4, bias=False)
    spmd.assert_type(layer.weight, {"tp": S(0)})
    layer.register_full_backward_hook(total)
    with typecheck():
        y = layer(make("R", grad=True))
        with refused("SW606", "total"):
            spmd.all_reduce(y.sum(), "tp", src=V, dst=I).backward()


def test_a_hook_that_rescales_is_told_at_what_it_returns(tp_mesh: Any) -> None:
    def divided(gradient: torch.Tensor) -> torch.Tensor:
        return gradient / dist.get_world_size()  # here

    weight = spmd.assert_type(torch.randn(4, 4, requires_grad=True), {"tp": R})
    rows = spmd.assert_type(torch.randn(4, 4), {"tp": S(0)})
    collector = Collector()
    with checking(local=False, collect=collector):
        made = rows @ weight
        made.register_hook(divided)
        spmd.sum(made.square(), (0, 1), out_partial_axes="tp").backward()
    (finding,) = collector.result().findings
    assert finding.code == "SW606"
    assert finding.location is not None
    assert (source_line(finding.location) or "").endswith("# here")
