"""Do the collectives take what programs hand them? Layouts, dtypes, names, in place, deferred: on real processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from shardwise import (
    I,
    MeshAxis,
    P,
    R,
    S,
    V,
    all_gather,
    all_reduce,
    all_to_all,
    convert,
    reduce_scatter,
    set_current_mesh,
)
from shardwise.worlds.world import run_processes

pytestmark = pytest.mark.processes

PROBES: dict[str, Callable[[], Any]] = {}


def probe(function: Callable[[], Any]) -> Callable[[], Any]:
    """Run ``function`` on two ranks, together with all other probes; the test of the same name judges the outcome."""
    PROBES[function.__name__] = function
    return function


def run_probes() -> dict[str, Any]:
    return {name: function() for name, function in PROBES.items()}


@cache
def all_outcomes() -> list[dict[str, Any]]:
    return run_processes(run_probes, 2)


@pytest.fixture
def outcomes(request: pytest.FixtureRequest) -> list[Any]:
    """What the probe that the test's module names returned on rank 0 and rank 1."""
    return [rank[request.param] for rank in all_outcomes()]


def judged(function: Callable[[], Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("outcomes", [function.__name__], indirect=True)


def world() -> Any:
    return dist.group.WORLD


def mine(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Different on each rank, the same in each run."""
    base = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    return (base + 100 * dist.get_rank()).to(dtype)


@probe
def transposed_operands() -> list[Tensor]:
    x = mine(4, 2).t()
    assert not x.is_contiguous()
    return [
        all_reduce(x, world(), dst=R),
        all_gather(x, world(), src=S(0), dst=R),
        all_gather(x, world(), src=V, dst=R),
        reduce_scatter(x, world(), dst=S(1)),
        all_to_all(x, world(), src=S(0), dst=S(1)),
        all_reduce(x.clone().t(), world(), dst=R, inplace=True),
    ]


@judged(transposed_operands)
def test_operands_need_not_be_contiguous(outcomes: list[list[Tensor]]):
    a, b = (
        torch.arange(8.0, dtype=torch.float64).reshape(4, 2).t(),
        100 + torch.arange(8.0, dtype=torch.float64).reshape(4, 2).t(),
    )
    for rank, got in enumerate(outcomes):
        expected = [
            a + b,
            torch.cat([a, b]),
            torch.stack([a, b]),
            (a + b).chunk(2, 1)[rank],
            torch.cat([a.chunk(2, 1)[rank], b.chunk(2, 1)[rank]], 0),
            (a + b).t(),
        ]
        for result, wanted in zip(got, expected, strict=True):
            torch.testing.assert_close(result, wanted)


DTYPES = (torch.complex64, torch.complex128, torch.int64, torch.int32, torch.uint8, torch.bfloat16, torch.float16)


@probe
def dtypes() -> list[list[Tensor]]:
    return [
        [
            all_reduce(x, world(), dst=R),
            all_gather(x, world(), src=S(0), dst=R),
            reduce_scatter(x, world(), dst=S(0)),
            all_to_all(x, world(), src=S(0), dst=S(1)),
            convert(x, world(), src=R, dst=S(0)),
            convert(x, world(), src=R, dst=P),
        ]
        for x in (((1 + 1j) if dtype.is_complex else 1) * (mine(2, 2) / 4).to(dtype) for dtype in DTYPES)
    ]


@judged(dtypes)
def test_every_dtype_travels(outcomes: list[list[list[Tensor]]]):
    base = torch.arange(4.0, dtype=torch.float64).reshape(2, 2)
    for number, dtype in enumerate(DTYPES):
        a, b = (((1 + 1j) if dtype.is_complex else 1) * ((base + shift) / 4).to(dtype) for shift in (0, 100))
        for rank in (0, 1):
            expected = [
                a + b,
                torch.cat([a, b]),
                (a + b).chunk(2)[rank],
                torch.cat([a.chunk(2, 1)[rank], b.chunk(2, 1)[rank]]),
                (a, b)[rank].chunk(2)[rank],
                a if rank == 0 else torch.zeros_like(a),
            ]
            for result, wanted in zip(outcomes[rank][number], expected, strict=True):
                assert result.dtype == dtype
                torch.testing.assert_close(result, wanted)


@probe
def integers_of_a_graph() -> bool:
    return all_gather(mine(2, dtype=torch.int64), world(), src=S(0), dst=R).requires_grad


@judged(integers_of_a_graph)
def test_integers_take_no_part_in_autograd(outcomes: list[bool]):
    assert outcomes == [False, False]


@probe
def in_place() -> list[Any]:
    leaf = mine(3).requires_grad_()
    x = leaf * 2
    y = all_reduce(x, world(), dst=R, inplace=True)
    (grad,) = torch.autograd.grad((y * torch.tensor([1.0, 2.0, 3.0])).sum(), leaf)
    plain = mine(3)
    same = all_reduce(plain, world(), dst=I, inplace=True) is plain
    return [y is x, y.detach(), grad, same, plain]


@judged(in_place)
def test_in_place_returns_its_operand_and_is_differentiable(outcomes: list[list[Any]]):
    for is_same, y, grad, plain_is_same, plain in outcomes:
        assert is_same
        assert plain_is_same
        torch.testing.assert_close(y, torch.tensor([200.0, 204.0, 208.0], dtype=torch.float64))
        torch.testing.assert_close(grad, torch.tensor([4.0, 8.0, 12.0], dtype=torch.float64))
        torch.testing.assert_close(plain, torch.tensor([100.0, 102.0, 104.0], dtype=torch.float64))


@probe
def deferred() -> list[Any]:
    leaf = mine(2, 2).requires_grad_()
    x = leaf * 1
    calls = [
        all_reduce(x, world(), dst=R, async_op=True),
        all_reduce(x, world(), dst=I, async_op=True),
        all_gather(x, world(), src=S(0), dst=R, async_op=True),
        all_gather(x, world(), src=V, dst=R, async_op=True),
        reduce_scatter(x, world(), dst=S(0), async_op=True),
        reduce_scatter(x, world(), dst=S(1), async_op=True),
        all_to_all(x, world(), src=S(0), dst=S(1), async_op=True),
        all_to_all(x, world(), async_op=True),
        all_gather(x, world(), src=S(1), dst=R, async_op=True),
    ]
    pending = [type(y).__name__ for y in calls]
    waited = [(y + 0).detach() for y in calls]
    (grad,) = torch.autograd.grad(sum((y * y).sum() for y in calls), leaf)
    return [pending, waited, grad]


@judged(deferred)
def test_async_op_defers_and_gives_the_same_numbers(outcomes: list[list[Any]]):
    a = torch.arange(4.0, dtype=torch.float64).reshape(2, 2)
    b = a + 100
    for rank, (pending, waited, grad) in enumerate(outcomes):
        assert pending == ["AsyncCollectiveTensor"] * 8 + ["Tensor"]
        expected = [
            a + b,
            a + b,
            torch.cat([a, b]),
            torch.stack([a, b]),
            (a + b)[rank : rank + 1],
            (a + b)[:, rank : rank + 1],
            torch.cat([a[:, rank : rank + 1], b[:, rank : rank + 1]]),
            torch.stack([a[rank], b[rank]]),
            torch.cat([a, b], 1),
        ]
        for result, wanted in zip(waited, expected, strict=True):
            assert type(result) is Tensor
            torch.testing.assert_close(result, wanted)
        own = (a, b)[rank]
        # P -> R sums 2 (a + b) over two ranks, P -> I takes it once, three gathers sum 2 own twice, and so on.
        wanted = 4 * (a + b) + 2 * (a + b) + 3 * 4 * own + 2 * 2 * (a + b) + 2 * 2 * own
        torch.testing.assert_close(grad, wanted)


@probe
def deferred_backward() -> list[Any]:
    options = {"async_op": True}
    leaf = mine(2, 2).requires_grad_()
    all_gather(leaf, world(), src=S(0), dst=R, backward_options=options).sum().backward()
    assert leaf.grad is not None
    inner = leaf * 1
    y = all_gather(inner, world(), src=S(0), dst=R, backward_options=options)
    (grad,) = torch.autograd.grad(y.sum(), inner)
    return [type(leaf.grad).__name__, leaf.grad, type(grad).__name__, grad + 0]


@judged(deferred_backward)
def test_a_deferred_backward_waits_for_leaves(outcomes: list[list[Any]]):
    for leaf_type, leaf_grad, inner_type, inner_grad in outcomes:
        assert leaf_type == "Tensor"
        assert inner_type == "AsyncCollectiveTensor"
        torch.testing.assert_close(leaf_grad, torch.full((2, 2), 2.0, dtype=torch.float64))
        torch.testing.assert_close(inner_grad, torch.full((2, 2), 2.0, dtype=torch.float64))


def axes_of_a_mesh() -> list[list[Tensor]]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = torch.tensor([float(dist.get_rank())])
    with set_current_mesh(mesh):
        by_name = [all_gather(x, axis, src=S(0), dst=R) for axis in ("dp", "tp")]
        by_axis = [all_gather(x, MeshAxis.of(2, stride), src=S(0), dst=R) for stride in (2, 1)]
    by_group = [all_gather(x, mesh.get_group(axis), src=S(0), dst=R) for axis in ("dp", "tp")]
    with set_current_mesh([mesh.get_group("dp"), mesh.get_group("tp")]):
        by_axis_of_groups = [all_gather(x, MeshAxis.of(2, stride), src=S(0), dst=R) for stride in (2, 1)]
    with set_current_mesh({"dp": mesh.get_group("dp"), "tp": mesh.get_group("tp")}):
        by_name_of_dict = [all_gather(x, axis, src=S(0), dst=R) for axis in ("dp", "tp")]
    return [by_name, by_axis, by_group, by_axis_of_groups, by_name_of_dict]


def test_an_axis_is_a_name_a_mesh_axis_or_a_group():
    for rank, ways in enumerate(run_processes(axes_of_a_mesh, 4)):
        dp, tp = [rank % 2, rank % 2 + 2], [rank // 2 * 2, rank // 2 * 2 + 1]
        for way in ways:
            assert [piece.tolist() for piece in way] == [dp, tp]
