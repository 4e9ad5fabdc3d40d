"""Where a number of unknown origin comes into a loss or a gradient, the line is listed at which the scale is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector

from .test_scale import typed


def _in_the_loss(loss: Tensor) -> Tensor:
    return loss / 8


def _in_a_tensor(loss: Tensor) -> Tensor:
    return loss * torch.tensor(8)


def _in_place(loss: Tensor) -> Tensor:
    loss *= 8.0
    return loss


def _of_the_gradient(gradient: Tensor) -> Tensor:
    return gradient / 8


def _of_gradients_in_place(gradient: Tensor) -> Tensor:
    torch._foreach_div_([gradient], 8)
    return gradient


def _same(x: Tensor) -> Tensor:
    return x


UNKNOWN_FACTORS: list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    (_in_the_loss, _same),
    (_in_a_tensor, _same),
    (_in_place, _same),
    (_same, _of_the_gradient),
    (_same, _of_gradients_in_place),
    (_same, _same),
]


@pytest.mark.parametrize(("in_forward", "behind"), UNKNOWN_FACTORS)
def test_the_line_at_which_the_scale_of_a_gradient_is_lost_is_listed_once(
    tp_mesh: Any, in_forward: Callable[[Tensor], Tensor], behind: Callable[[Tensor], Tensor]
) -> None:
    """Also for the second call of a kind, whose verdict is known; a number in a curved function loses nothing."""
    listed = []
    for _ in range(2):
        collector = Collector()
        with checking(collect=collector, local=False):
            weight = spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R})
            for _ in range(2):
                weight.grad = None
                x = (typed(torch.randn(4, 3), S(0)) / 4).tanh()
                in_forward((x @ weight).sum()).backward()
                assert weight.grad is not None
                dist.all_reduce(weight.grad)
                weight.grad = behind(weight.grad)
                torch.optim.SGD([weight], lr=0.1).step()
        result = collector.result()
        assert not result.findings
        listed.append([(one.what, one.count, one.location and one.location.function) for one in result.lost])
    factor = next((one.__name__ for one in (in_forward, behind) if one is not _same), None)
    what = "the scale over tp of what SGD.step takes, by a factor of unknown origin"
    assert listed == [[(what, 1, factor)] if factor else []] * 2


def _by_hand(weight: Tensor) -> None:
    with torch.no_grad():
        weight -= 0.1 * weight.grad


def _by_a_copy(weight: Tensor) -> None:
    weight.data.copy_(weight.detach() - weight.grad)


def _by_an_optimizer(weight: Tensor) -> None:
    torch.optim.SGD([weight], lr=0.1).step()


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("step", [_by_hand, _by_a_copy, _by_an_optimizer], ids=lambda step: step.__name__)
@pytest.mark.parametrize("count", [4, 0.25])
def test_a_step_by_hand_lists_a_literal_count_as_an_optimizer_does(
    tp_mesh: Any, step: Any, count: float, local: bool
) -> None:
    collector = Collector()
    with checking(collect=collector, local=local):
        typed(torch.randn(4), S(0)).sum() / count  # a call of the same types, which has no gradient, is known by now
        weight = spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R})
        loss = spmd.reinterpret((typed(torch.randn(4, 3), S(0)) @ weight).sum() / count, "tp", src=V, dst=P)
        loss.backward()
        assert weight.grad is not None
        dist.all_reduce(weight.grad)
        step(weight)
    taken = "what SGD.step takes" if step is _by_an_optimizer else "a gradient"
    lost = [f"the scale over tp of {taken}, by a factor of unknown origin"] if count == 4 else []
    assert [one.what for one in collector.result().lost] == lost
    assert not collector.result().findings


def test_a_step_by_hand_beside_that_of_an_optimizer_lists_its_own_count(tp_mesh: Any) -> None:
    """The optimizer's gradients are on the scale, and say nothing of those that are used by hand."""
    collector = Collector()
    with checking(collect=collector, local=False):
        one, two = (spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R}) for _ in range(2))
        ((typed(torch.randn(4, 3), S(0)) @ one).sum() / 0.25).backward()
        ((typed(torch.randn(4, 3), S(0)) @ two).sum() / 4).backward()
        for weight in (one, two):
            assert weight.grad is not None
            dist.all_reduce(weight.grad)
        torch.optim.SGD([one], lr=0.1).step()
        assert not collector.result().lost
        _by_hand(two)
    lost = [one.what for one in collector.result().lost]
    assert lost == ["the scale over tp of a gradient, by a factor of unknown origin"]


@pytest.mark.parametrize("local", [True, False])
def test_a_mean_of_what_varies_is_no_factor_of_unknown_origin(tp_mesh: Any, local: bool) -> None:
    """Local types know no scale of it; every data-parallel program has one, and none is told of a factor."""
    collector = Collector()
    with checking(collect=collector, local=local):
        weight = spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R})
        (typed(torch.randn(4, 3), S(0)) @ weight).mean().backward()
        assert weight.grad is not None
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
        torch.optim.SGD([weight], lr=0.1).step()
    assert not collector.result().lost


BESIDE: list[tuple[str, Callable[[Tensor, Tensor, int], Tensor]]] = [
    ("div", lambda mean, y, n: y / n),
    ("div", lambda mean, y, n: y / (n * 2)),
    ("mul", lambda mean, y, n: y * n),
    ("add", lambda mean, y, n: y + 1 / n),
    ("add", lambda mean, y, n: torch.add(mean, y, alpha=n)),
    ("add_", lambda mean, y, n: mean.mul_(0.9).add_(y, alpha=n * 0.1)),
    ("addcmul_", lambda mean, y, n: mean.addcmul_(y, y, value=n)),
]


@pytest.mark.parametrize(("op", "call"), BESIDE)
@pytest.mark.parametrize("count", [8, 0.125])
def test_a_number_of_ranks_beside_a_factor_of_unknown_origin_is_listed(
    tp_mesh: Any, op: str, call: Callable[[Tensor, Tensor, int], Tensor], count: float
) -> None:
    """No gradient takes part, so no step will list it; also the second line that does it, whose types are alike."""
    collector = Collector()
    with checking(collect=collector, local=False), torch.no_grad():
        mean = typed(torch.rand(3), R)
        y = spmd.all_reduce(typed(torch.rand(4, 3), S(0)).sum(0) / count, "tp", src=P, dst=R)
        for _ in range(2):
            if count == 8:
                call(mean.clone(), y, dist.get_world_size())
                call(mean.clone(), y, dist.get_world_size())
            y / 4, y * 0.5, y + 3
            torch.arange(8) // dist.get_world_size()
    what = f"the scale over tp of what {op} makes, by a factor of unknown origin"
    assert [(one.what, one.count) for one in collector.result().lost] == ([(what, 4)] if count == 8 else [])
    assert not collector.result().findings


@pytest.mark.parametrize("factor", [3.0, 0.5])
def test_a_term_of_unknown_scale_beside_one_that_is_known_is_listed_where_it_is_added(
    tp_mesh: Any, factor: float
) -> None:
    """The sum has the scale of the known term, so that nothing else says that the other's is not known."""
    collector = Collector()
    with checking(collect=collector, local=False):
        weight = spmd.assert_type(nn.Parameter(torch.randn(3)), {"tp": R})
        for _ in range(2):
            y = typed(torch.randn(4, 3), S(0)) @ weight
            penalty = y.square().sum() * factor / dist.get_world_size()
            (y.sum() + penalty if factor == 3.0 else y.sum() + y.square().sum() * factor).backward()
            assert weight.grad is not None
            dist.all_reduce(weight.grad)
            torch.optim.SGD([weight], lr=0.1).step()
            weight.grad = None
    lost = [(one.what, one.count, one.location and one.location.line) for one in collector.result().lost]
    line = test_a_term_of_unknown_scale_beside_one_that_is_known_is_listed_where_it_is_added.__code__.co_firstlineno
    what = "the scale over tp of what SGD.step takes, by a factor of unknown origin"
    assert [(what, count) for what, count, _ in lost] == ([(what, 1)] if factor == 3.0 else [])
    assert all(at is not None and at > line for _, _, at in lost)
    assert not collector.result().findings
