"""Elements of gradients that are copied in another order: is what is put back in the wrong order found, and the right
order clean?

Each way is tried with numbers on ranks that share a process, and under the checker. The two must say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardwise as spmd
from shardwise import P, R, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import FakeWorld

from .test_gradient_pieces import RANKS, Parameters, Way, check, is_right, put_back, starts

Turning = Callable[[Any], torch.Tensor]


def gradient_of_w(parameters: Parameters) -> Any:
    """That of the first parameter, which has 4 rows of 3; the others are summed."""
    for parameter in parameters[1:]:
        dist.all_reduce(parameter.grad)
    return parameters[0].grad


def sent(turn: Turning, back: Turning) -> Way:
    """The gradient in the order that ``turn`` gives, summed, and put back as ``back`` gives it."""

    def way(parameters: Parameters) -> None:
        gradient = gradient_of_w(parameters)
        message = turn(gradient)
        dist.all_reduce(message)
        gradient.copy_(back(message))

    return way


def as_rows(message: torch.Tensor) -> torch.Tensor:
    return message.reshape(4, 3)


def turned(message: torch.Tensor) -> torch.Tensor:
    return message.reshape(3, 4).t()


def halves(first: slice, second: slice) -> Way:
    """Every other row in a message of its own."""

    def way(parameters: Parameters) -> None:
        gradient = gradient_of_w(parameters)
        even, odd = gradient[::2].clone(), gradient[1::2].clone()
        dist.all_reduce(even)
        dist.all_reduce(odd)
        gradient[first].copy_(even)
        gradient[second].copy_(odd)

    return way


def in_a_buffer(right: bool) -> Way:
    def way(parameters: Parameters) -> None:
        buffer = torch.empty(24)
        columns = buffer[:12].view(3, 4)
        columns.copy_(parameters[0].grad.t())  # type: ignore[union-attr]
        for at, parameter in list(zip(starts(parameters), parameters, strict=True))[1:]:
            buffer[at : at + parameter.numel()].copy_(parameter.grad.view(-1))  # type: ignore[union-attr]
        dist.all_reduce(buffer)
        parameters[0].grad.copy_(columns.t() if right else buffer[:12].view(4, 3))  # type: ignore[union-attr]
        for at, parameter in list(zip(starts(parameters), parameters, strict=True))[1:]:
            parameter.grad.copy_(buffer[at : at + parameter.numel()].view_as(parameter))  # type: ignore[union-attr]

    return way


def main_gradients(right: bool) -> Way:
    """They lie transposed in one buffer, and enter the step as views of it."""

    def way(parameters: Parameters) -> None:
        buffer = torch.zeros(24)
        places = [buffer[at : at + p.numel()] for at, p in zip(starts(parameters), parameters, strict=True)]
        mains = [
            place.view(p.t().shape).t() if p.ndim == 2 else place for place, p in zip(places, parameters, strict=True)
        ]
        for main, parameter in zip(mains, parameters, strict=True):
            main.add_(parameter.grad)  # type: ignore[arg-type]
        dist.all_reduce(buffer)
        for main, place, parameter in zip(mains, places, parameters, strict=True):
            parameter.grad = main if right else place.view(parameter.shape)

    return way


def into_the_transposed(parameters: Parameters) -> None:
    gradient = gradient_of_w(parameters)
    message = gradient.t().contiguous()
    dist.all_reduce(message)
    gradient.t().copy_(message)


def assigned(back: Turning) -> Way:
    def way(parameters: Parameters) -> None:
        gradient_of_w(parameters)
        message = parameters[0].grad.t().contiguous()  # type: ignore[union-attr]
        dist.all_reduce(message)
        parameters[0].grad = back(message)

    return way


def exchanged_copies(right: bool) -> Way:
    """Two gradients of one size."""

    def way(parameters: Parameters) -> None:
        gradient = gradient_of_w(parameters)
        dist.all_reduce(gradient)
        rows = parameters[2].grad.clone()  # type: ignore[union-attr]
        gradient.view(-1)[:8].copy_((gradient if right else rows).view(-1)[:8].clone())

    return way


def order() -> torch.Tensor:
    """Of the rows: its inverse is another one."""
    return torch.tensor([2, 0, 3, 1])


def scattered(start: int, padding: int = 2) -> Way:
    """In a padded bucket that is reduced in parts, which are gathered again; unpacked from element ``start`` on."""

    def way(parameters: Parameters) -> None:
        flat = torch.cat([*[p.grad.view(-1) for p in parameters], torch.zeros(2 * padding)])  # type: ignore[union-attr]
        own, whole = torch.empty(len(flat) // RANKS), torch.empty_like(flat)
        dist.reduce_scatter_tensor(own, flat)
        dist.all_gather_into_tensor(whole, own)
        for at, parameter in zip(starts(parameters), parameters, strict=True):
            first = start + at
            parameter.grad.copy_(whole[first : first + parameter.numel()].view_as(parameter))  # type: ignore[union-attr]

    return way


def one_buffer(shift: int) -> Way:
    """A narrow of all of a buffer is summed; the second gradient is taken ``shift`` elements further on."""

    def way(parameters: Parameters) -> None:
        buffer = torch.empty(24)
        for at, parameter in zip(starts(parameters), parameters, strict=True):
            buffer.narrow(0, at, parameter.numel()).copy_(parameter.grad.reshape(-1))  # type: ignore[union-attr]
        dist.all_reduce(buffer.narrow(0, 0, 24))
        for at, parameter in zip(starts(parameters), parameters, strict=True):
            first = at + (shift if parameter is parameters[1] else 0)
            part = buffer.narrow(0, first, parameter.numel())
            parameter.grad.data.copy_(part.view_as(parameter))  # type: ignore[union-attr]

    return way


def padded(before: int, after: int) -> Way:
    def way(parameters: Parameters) -> None:
        flat = torch.cat([parameter.grad.view(-1) for parameter in parameters])  # type: ignore[union-attr]
        flat = nn.functional.pad(flat, (before, after))
        dist.all_reduce(flat)
        put_back(parameters, flat[:24])

    return way


def side_by_side(right: bool) -> Way:
    """Joined along the second dim."""

    def way(parameters: Parameters) -> None:
        w, b, v = (parameter.grad for parameter in parameters)
        both = torch.cat([w, b[:, None]], 1)  # type: ignore[index, list-item]
        dist.all_reduce(both)
        w.copy_(both[:, :3] if right else both[:, 1:])  # type: ignore[union-attr]
        b.copy_(both[:, 3] if right else both[:, 0])  # type: ignore[union-attr]
        dist.all_reduce(v)

    return way


ORDERS: dict[str, tuple[Turning, Turning]] = {
    "transposed in a row": (lambda g: g.t().reshape(-1), turned),
    "transposed": (lambda g: g.T.contiguous(), turned),
    "transposed, flattened": (lambda g: g.permute(1, 0).flatten(), turned),
    "transposed, as wide numbers": (lambda g: g.double().t().reshape(-1), lambda m: turned(m).float()),
    "transposed, in a buffer": (lambda g: torch.zeros(12).copy_(g.t().reshape(-1)), turned),
    "by strides": (lambda g: g.as_strided((3, 4), (1, 3)).clone(memory_format=torch.contiguous_format), turned),
    "columns behind one another": (lambda g: torch.cat([c.reshape(-1) for c in g.split(1, 1)]), turned),
    "rows as columns": (lambda g: torch.stack(list(g.unbind(0)), 1), torch.t),
    "from the last row to the first": (lambda g: g.flip(0), lambda m: m.flip(0)),
    "a row on": (lambda g: g.roll(1, 0), lambda m: m.roll(-1, 0)),
    "rows by number": (lambda g: g[order()], lambda m: m[torch.argsort(order())]),
    "chosen rows": (lambda g: g.index_select(0, order()), lambda m: m.index_select(0, torch.argsort(order()))),
}

RIGHT: dict[str, Way] = {
    **{name: sent(turn, back) for name, (turn, back) in ORDERS.items()},
    "every other row": halves(slice(0, None, 2), slice(1, None, 2)),
    "in a shared buffer": in_a_buffer(True),
    "transposed main gradients": main_gradients(True),
    "into the transposed gradient": into_the_transposed,
    "assigned": assigned(torch.t),
    "a copy of its own": exchanged_copies(True),
    "reduced in parts": scattered(0),
    "all of a buffer": one_buffer(0),
    "padded behind": padded(0, 8),
    "side by side": side_by_side(True),
}

WRONG: dict[str, Way] = {
    **{name: sent(turn, as_rows) for name, (turn, _) in ORDERS.items()},
    "every other row": halves(slice(0, 2), slice(2, 4)),
    "the rows between": halves(slice(1, None, 2), slice(0, None, 2)),
    "in a shared buffer": in_a_buffer(False),
    "transposed main gradients": main_gradients(False),
    "assigned": assigned(as_rows),
    "a copy of another one": exchanged_copies(False),
    "reduced in parts": scattered(2),
    "all of a buffer": one_buffer(1),
    "padded before": padded(8, 0),
    "side by side": side_by_side(False),
}


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_put_back_in_its_order_is_clean(name: str, local: bool) -> None:
    for rank in range(RANKS):
        result = check(RIGHT[name], local=local, rank=rank)
        assert not result.findings, [str(finding) for finding in result.findings]
        assert not result.lost


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_put_back_in_another_order_is_a_finding(name: str, local: bool) -> None:
    for rank in range(RANKS):
        result = check(WRONG[name], local=local, rank=rank)
        assert {finding.code for finding in result.findings} == {"SW614"}, [str(one) for one in result.findings]


@pytest.mark.processes
@pytest.mark.parametrize("name", RIGHT)
def test_the_numbers_are_those_of_one_device(name: str) -> None:
    assert is_right(RIGHT[name])


@pytest.mark.processes
@pytest.mark.parametrize("name", WRONG)
def test_the_numbers_are_not_those_of_one_device(name: str) -> None:
    assert not is_right(WRONG[name])


def test_an_order_that_nobody_looks_up_is_listed_as_lost() -> None:
    """Rows of a gradient that is too large to list every element."""

    def program() -> None:
        mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(mesh), checking(collect=collector):
            w = spmd.assert_type(torch.ones(600, 500).requires_grad_(), {"dp": R})
            x = spmd.assert_type(torch.ones(500), {"dp": V})
            spmd.reinterpret((w @ x).sum(), "dp", src=V, dst=P).backward()
            message = w.grad.flip(0)  # type: ignore[union-attr]
            dist.all_reduce(message)
            w.grad.copy_(message.flip(0))  # type: ignore[union-attr]
            torch.optim.SGD([w], 0.1).step()

    collector = Collector()
    FakeWorld(RANKS, 0).run(program)
    result = collector.result()
    assert not result.findings
    assert [one.what for one in result.lost] == ["the order of the elements of a gradient that SGD.step takes"]


@pytest.mark.parametrize("shift", [0, 2])
def test_a_typed_sum_leaves_every_element_at_its_place(shift: int) -> None:
    def way(parameters: Parameters) -> None:
        flat = torch.cat([parameter.grad.view(-1) for parameter in parameters])  # type: ignore[union-attr]
        summed = spmd.all_reduce(flat, "dp", src=P, dst=R)
        for at, parameter in zip(starts(parameters), parameters, strict=True):
            first = at + (shift if parameter is parameters[1] else 0)
            parameter.grad = summed[first : first + parameter.numel()].view_as(parameter)

    assert {finding.code for finding in check(way).findings} == ({"SW614"} if shift else set())
