"""Numbers that a program reads of a mesh or of a tensor: their scale is that of where they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.types import SpmdTypeError

from .test_scale import exponent, typed


@pytest.mark.parametrize(
    ("call", "power"),
    [
        (lambda x: x.sum(), 0),
        (lambda x: x.mean(), 1),
        (lambda x: x.sum() / x.shape[0], 1),
        (lambda x: x.sum() / x.numel(), 1),
        (lambda x: x.sum() / x.size(0), 1),
        (lambda x: x.sum() / (x.shape[0] * dist.get_world_size()), 0),
        (lambda x: x.mean() / dist.get_world_size(), 0),
        (lambda x: x.sum() * dist.get_world_size() ** 2, 2),
        (lambda x: x.sum() / 8, None),
        (lambda x: x.sum() / 8.0, None),
        (lambda x: x.sum() * 0.125, 0),
        (lambda x: x.sum() / torch.tensor(8), None),
        (lambda x: x.sum() / torch.full((), dist.get_world_size()), -1),
        (lambda x: x.sum() / torch.tensor([dist.get_world_size()]), -1),
        (lambda x: x.sum() / torch.tensor(dist.get_world_size()).item(), -1),
        (lambda x: x.sum() / torch.tensor(8).item(), None),
        (lambda x: x.sum() * (dist.get_world_size() - 1), None),
        (lambda x: x.sum() * len(x), None),
        (lambda x: x.sum() * float(dist.get_world_size()), None),
    ],
)
def test_numbers_scale_a_pending_sum_by_where_they_come_from(tp_mesh: Any, call: Any, power: int | None) -> None:
    with typecheck(local=False):
        assert exponent(call(typed(torch.randn(4, 3), S(0)))) == power


def test_what_is_read_of_a_tensor_is_combined_like_the_tensor(tp_mesh: Any) -> None:
    with typecheck():
        pending, counts = typed(torch.randn(4), P), typed(torch.rand(4), spmd.V).sum()
        for count in (counts, counts.item(), [counts.item()][0]):
            with pytest.raises(SpmdTypeError, match="SW110"):
                pending / count
        equal = typed(torch.randn(4), R)
        assert spmd.get_local_type(equal * counts.item()) == {spmd.normalize_axis("tp"): spmd.V}
        assert spmd.get_local_type(equal * equal.sum().item()) == {spmd.normalize_axis("tp"): R}


def test_a_number_is_an_int_or_float_to_everyone_else(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = typed(torch.randn(4, 3), S(0))
        rows = x.shape[0]
        assert rows == 4
        assert isinstance(rows, int)
        assert f"{rows}" == "4"
        assert type(int(rows)) is int
        assert torch.zeros(x.shape).shape == (4, 3)
        assert x.view(rows, -1).shape == (4, 3)
        assert list(range(rows)) == [0, 1, 2, 3]


COEFFICIENTS: list[tuple[str, Callable[[Tensor, Tensor, float], Any]]] = [
    ("add", lambda x, y, n: torch.add(x, y, alpha=n * 0.1)),
    ("add_", lambda x, y, n: x.mul_(0.9).add_(y, alpha=n * 0.1)),
    ("addcmul_", lambda x, y, n: x.addcmul_(y, y, value=n)),
    ("addcdiv", lambda x, y, n: torch.addcdiv(x, y, y.abs() + 1, value=n)),
    ("addmm", lambda x, y, n: torch.addmm(x, x, y, alpha=n)),
    ("addmm, beta", lambda x, y, n: torch.addmm(x, x, y, beta=n)),
    ("addr", lambda x, y, n: torch.addr(x, y[0], y[0], alpha=n)),
    ("index_add_", lambda x, y, n: x.index_add_(0, torch.arange(3), y, alpha=n)),
    ("lerp_", lambda x, y, n: x.lerp_(y, n * 0.1)),
    ("_foreach_add_", lambda x, y, n: torch._foreach_add_([x], [y], alpha=n)),
    ("_foreach_addcmul", lambda x, y, n: torch._foreach_addcmul([x], [y], [y], value=n)),
]


@pytest.mark.parametrize("call", [pytest.param(case[1], id=case[0]) for case in COEFFICIENTS])
@pytest.mark.parametrize("local", [True, False])
def test_a_coefficient_of_a_term_has_the_scale_of_where_it_comes_from(
    tp_mesh: Any, local: bool, call: Callable[[Tensor, Tensor, float], Any]
) -> None:
    with typecheck(local=local):
        x, y = typed(torch.rand(3, 3), R), typed(torch.rand(3, 3), R)
        for number in (0.5, 4, dist.get_world_size() * tp_mesh.size() ** -1):
            call(x, y, number)
        for number in (dist.get_world_size(), 1 / dist.get_world_size()):
            with pytest.raises(SpmdTypeError, match=r"SW150.*4 times too"):
                call(typed(torch.rand(3, 3), R), y, number)


ADDED: list[tuple[str, Callable[[Tensor, Any], Any]]] = [
    ("add", lambda x, n: x + 1 / n),
    ("radd", lambda x, n: 1 / n + x),
    ("sub", lambda x, n: x - n),
    ("rsub", lambda x, n: n - x),
    ("torch.add", lambda x, n: torch.add(x, n, alpha=0.5)),
    ("add_", lambda x, n: x.add_(1 / n)),
    ("masked_fill", lambda x, n: x.masked_fill(x > 0, 1 / n)),
    ("where", lambda x, n: torch.where(x > 0, x, 1 / n)),
    ("_foreach_add", lambda x, n: torch._foreach_add([x], 1 / n)),
]


@pytest.mark.parametrize("call", [pytest.param(case[1], id=case[0]) for case in ADDED])
@pytest.mark.parametrize("local", [True, False])
def test_a_number_that_is_added_has_the_scale_of_where_it_comes_from(
    tp_mesh: Any, local: bool, call: Callable[[Tensor, Any], Any]
) -> None:
    with typecheck(local=local):
        for number in (0.5, 4, 1e-6, dist.get_world_size() / tp_mesh.size()):
            call(typed(torch.rand(3), R), number)
        numbers = [dist.get_world_size(), *([typed(torch.rand(4, 3), S(0)).shape[0]] if not local else [])]
        for number in numbers:
            with pytest.raises(SpmdTypeError, match=r"SW150.*4 times too"):
                call(typed(torch.rand(3), R), number)
        call(typed(torch.rand(3), R) / 8, dist.get_world_size())


@pytest.mark.parametrize("local", [True, False])
def test_positions_may_be_moved_by_a_number_of_ranks(tp_mesh: Any, local: bool) -> None:
    with typecheck(local=local):
        for _ in range(2):
            typed(torch.arange(3), R) + dist.get_world_size()
            with pytest.raises(SpmdTypeError, match="SW150"):
                typed(torch.rand(3), R) + dist.get_world_size()


def test_a_number_that_is_added_to_its_own_scale_is_right(tp_mesh: Any) -> None:
    with typecheck(local=False):
        x = typed(torch.rand(4, 3), S(0))
        inverse = spmd.all_reduce(x.mean(), "tp", src=P, dst=R)
        assert exponent(inverse + 1 / x.shape[0]) == 1
        assert exponent(inverse + 1e-6) == 1
        torch.zeros(3) + dist.get_world_size()
    with typecheck():
        typed(torch.rand(3), V) + dist.get_rank() * dist.get_world_size()
        typed(torch.rand(3), V) + dist.get_world_size()


@pytest.mark.parametrize("local", [True, False])
def test_the_size_of_a_step_may_grow_with_the_ranks(tp_mesh: Any, local: bool) -> None:
    weight = typed(nn.Parameter(torch.rand(3)), R)
    with typecheck(local=local), torch.no_grad():
        for _ in range(2):
            y = typed(torch.rand(3), R)
            weight.add_(y, alpha=dist.get_world_size() * 0.1)
            weight.addcdiv_(y, y + 1, value=dist.get_world_size() * -0.1)
            typed(torch.rand(3), R).add_(y, alpha=dist.get_world_size() * -0.1)
            typed(torch.rand(3), R).sub_(y, alpha=dist.get_world_size() * 0.1)
