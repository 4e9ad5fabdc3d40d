"""Where backward may start, for every spelling of backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardwise as spmd
from shardwise import I, P, R, V, convert
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import InProcessWorld

from .helpers import make, place, refused
from .on_ranks import RANKS, drawn, shard, whole

START_AT_ALL_LEAVES: list[Callable[[Any, Any], Any]] = [
    lambda loss, x: loss.backward(),
    lambda loss, x: torch.autograd.backward(loss),
    lambda loss, x: torch.autograd.backward([loss]),
]
START = [
    *START_AT_ALL_LEAVES,
    lambda loss, x: torch.autograd.grad(loss, x),
    lambda loss, x: torch.autograd.grad([loss], [x]),
]


@pytest.mark.parametrize("start", START)
@pytest.mark.parametrize(("letter", "code"), [("I", ""), ("P", ""), ("R", "SW601")])
def test_the_loss_must_be_invariant_or_partial(tp_mesh: Any, start: Any, letter: str, code: str) -> None:
    x = make(letter, grad=True)
    with typecheck():
        loss = x.sum()
        if code:
            with refused(code, "loss", "tp"):
                start(loss, x)
            assert x.grad is None
        else:
            start(loss, x)


@pytest.mark.parametrize("start", START_AT_ALL_LEAVES)
def test_backward_does_not_start_from_a_list_of_losses(tp_mesh: Any, start: Any) -> None:
    x = make("V", grad=True)
    with typecheck(), refused("SW602", "loss", "tp"):
        start(x.sum(), x)
    assert x.grad is None


def test_each_rank_may_take_the_derivative_of_its_own_number_by_what_it_alone_has(tp_mesh: Any) -> None:
    shared, own = make("R", grad=True), make("V", grad=True)
    with typecheck():
        losses = (shared * own).sum()
        (penalty,) = torch.autograd.grad(losses, own, create_graph=True)
        assert place(penalty) == "V"
        assert [place(one) for one in torch.autograd.grad(losses, [own], retain_graph=True)] == ["V"]
        for inputs in (shared, [own, shared]):
            with refused("SW602", "losses", "tp"):
                torch.autograd.grad(losses, inputs)


def test_what_is_derived_once_more_of_each_ranks_own_loss_is_listed(tp_mesh: Any) -> None:
    """It has no type: nobody knows whether it is part of a loss, or an addend that has to be summed."""
    collector = Collector()
    with checking(collect=collector, local=False):
        x = spmd.assert_type(torch.randn(2, 4), {"tp": spmd.S(0)}).requires_grad_()
        w = make("R", grad=True)
        torch.autograd.grad((x @ w).square().sum(), x, create_graph=True)
        assert not collector.result().lost
        torch.autograd.grad((x @ w).square().sum(), w, create_graph=True)
    assert [lost.what for lost in collector.result().lost] == [
        "the type of gradients of each rank's own loss, of which more is derived"
    ]


def test_a_gradient_given_by_the_caller_is_the_callers_business(tp_mesh: Any) -> None:
    x = make("V", grad=True)
    with typecheck():
        x.sum().backward(torch.ones(()))
        y = x.sum()
        y.backward(gradient=torch.ones(()))
    assert x.grad is not None


def test_an_untyped_loss_is_an_error_in_strict_mode_only(tp_mesh: Any) -> None:
    x = torch.randn(4, requires_grad=True)
    with typecheck():
        loss = x.sum()
        with refused("SW603", "loss"):
            loss.backward()
    with typecheck("permissive"):
        loss.backward()
    assert x.grad is not None


def test_every_wrong_axis_is_told(mesh: Any) -> None:
    loss = spmd.assert_type(torch.randn((), requires_grad=True), {"dp": V, "tp": R})
    with typecheck(), refused("SW602", "dp"):
        loss.backward()


@pytest.mark.parametrize(("letter", "dual"), [("R", "P"), ("I", "I"), ("V", "V"), ("P", "R")])
def test_gradients_have_the_dual_type(tp_mesh: Any, letter: str, dual: str) -> None:
    x = make(letter, grad=True)
    with typecheck():
        y = spmd.reinterpret(x, "tp", src=R, dst=V, expert_mode=True) if letter == "R" else x
        loss = y.sum()
        loss = spmd.reinterpret(loss, "tp", src=V, dst=P) if letter in "RV" else loss
        (gradient,) = torch.autograd.grad(loss, x)
        assert place(gradient) == dual


def test_a_backward_pass_that_runs_python_is_not_judged_by_the_forward_rules(tp_mesh: Any) -> None:
    x = make("P", grad=True)
    weight = make("R", grad=True)
    with typecheck():
        y = torch.utils.checkpoint.checkpoint(lambda a: (a * weight) * 2, x, use_reentrant=False)
        assert place(y) == "P"
        y.sum().backward()
    assert x.grad is not None


def test_a_mesh_of_one_rank_has_nothing_to_check() -> None:
    with spmd.set_current_mesh({"tp": spmd.MeshAxis.of(1, 1)}), typecheck():
        x = spmd.assert_type(torch.randn(4, requires_grad=True), {"tp": V})
        (x * 2).sum().backward()
    assert x.grad is not None


def summed(x: torch.Tensor) -> torch.Tensor:
    """A sum that autograd knows nothing of."""
    x = x.clone()
    dist.all_reduce(x)
    return x


BATCH, WEIGHT = drawn(4, 4, seed=1), drawn(4, 4, seed=2)


def squares(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).square().sum()


SUMS_IN_PLACE: list[tuple[str, Any, Any]] = [
    ("the loss itself", lambda x, w: summed(part(squares(x, w))), squares),
    ("computed with", lambda x, w: summed(part(squares(x, w))).log() * 3, lambda x, w: squares(x, w).log() * 3),
    (
        "two of them",
        lambda x, w: summed(part((x @ w).sum())) / summed(part(squares(x, w))),
        lambda x, w: (x @ w).sum() / squares(x, w),
    ),
    ("beside a term of every rank", lambda x, w: summed(part(squares(x, w))) + w.square().sum(), "SW601"),
    ("behind another sum", lambda x, w: summed(part(squares(x, w * summed(part((x @ w).sum()))))), "SW606"),
    ("an average", lambda x, w: averaged(part(squares(x, w))), "SW601"),
]


def averaged(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    return x


def part(x: torch.Tensor) -> torch.Tensor:
    return spmd.reinterpret(x, "tp", src=V, dst=P)


def gradient_of_sums(program: Any) -> Any:
    """The code of what is told, or the sum of what the ranks have as the gradient of the weight."""
    mesh = dist.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    with spmd.set_current_mesh(mesh), typecheck():
        x, w = shard(BATCH), whole(WEIGHT.clone().requires_grad_())
        try:
            program(x, w).backward()
        except spmd.SpmdTypeError as error:
            return error.code
        return spmd.all_reduce(w.grad, "tp", src=P, dst=R).detach()


@pytest.mark.processes
@pytest.mark.parametrize("case", SUMS_IN_PLACE, ids=lambda case: case[0])
def test_a_loss_that_is_summed_in_place_hands_every_addend_its_gradient(case: Any) -> None:
    _, program, meant = case
    found = InProcessWorld(RANKS).run(gradient_of_sums, program)
    if isinstance(meant, str):
        assert found == [meant] * RANKS
        return
    w = WEIGHT.clone().requires_grad_()
    meant(BATCH, w).backward()
    for gradient in found:
        torch.testing.assert_close(gradient, w.grad)


@pytest.mark.parametrize("derive", [lambda loss, x: torch.autograd.grad(loss, x)[0], lambda loss, x: loss.backward()])
def test_a_leaf_of_zeros_is_what_each_rank_adds_to_its_own_data(tp_mesh: Any, derive: Any) -> None:
    """As in adversarial training: nobody has said that all ranks share it, so that its gradient is a sum over them."""
    images = torch.randn(4, 4)
    with typecheck(strict_mode="permissive"):
        shift = torch.zeros_like(images, requires_grad=True)
        found = derive(((images + shift) * make("V")).sum(), shift)
        gradient = shift.grad if found is None else found
        gradient.sign()
    assert place(gradient) in ("", "?")


@pytest.mark.parametrize(("letters", "codes"), [("R", []), ("R?", []), ("I", ["SW602"]), ("I?", ["SW602"])])
def test_a_parameter_of_which_nothing_is_known_does_not_forbid_to_add_losses_up(
    tp_mesh: Any, letters: str, codes: list[str]
) -> None:
    """As an expert that only some ranks have."""
    found = Collector()
    with checking(strict=False, local=True, collect=found, observe=True):
        data = make("V")
        weights = [torch.randn(4, 4, requires_grad=True) if one == "?" else make(one, grad=True) for one in letters]
        total = data.sum()
        for weight in weights:
            used = convert(weight, "tp", src=I, dst=R) if letters[0] == "I" and weight is weights[0] else weight
            part = (data * used).sum()
            total = total + (spmd.assert_type(part, {"tp": V}) if not place(weight) else part)
        total.backward()
    assert [one.code for one in found.result().findings] == codes
