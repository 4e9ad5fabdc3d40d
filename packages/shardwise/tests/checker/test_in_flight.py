"""What is done to a tensor between the start of a collective and ``wait()``: found where it is wrong, only there."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import P, R, S, V
from shardwise.checker import typecheck
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.finding import Finding
from shardwise.diagnostics.result import Collector
from shardwise.interop.torch_compat import fake_world

Program = Callable[[], object]


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with fake_world(0, 2):
        grid = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(grid):
            yield


def own(*shape: int) -> torch.Tensor:
    return spmd.assert_type(torch.randn(*(shape or (4,))), {"dp": V})


def used_after_reduce() -> None:
    x = own()
    handle = dist.all_reduce(x, async_op=True)
    x.sum()  # SW220
    handle.wait()


def used_through_a_view() -> None:
    x = own(4, 4)
    view = x[1]
    handle = dist.all_reduce(x, async_op=True)
    view * 2  # SW220
    handle.wait()


def used_after_gather() -> None:
    whole = torch.empty(8)
    handle = dist.all_gather_into_tensor(whole, own(), async_op=True)
    torch.relu(whole)  # SW220
    handle.wait()


def used_piece_of_a_list() -> None:
    pieces = [torch.empty(4) for _ in range(2)]
    handle = dist.all_gather(pieces, own(), async_op=True)
    torch.cat(pieces)  # SW220
    handle.wait()


def sent_on() -> None:
    piece = torch.empty(4)
    handle = dist.reduce_scatter_tensor(piece, own(8), async_op=True)
    whole = torch.empty(8)
    dist.all_gather_into_tensor(whole, piece, group=dist.new_group([0, 1]))  # SW220
    handle.wait()


def received_and_used() -> None:
    x = torch.empty(4)
    handle = dist.irecv(x, 1)
    x.add(1)  # SW220
    handle.wait()


def batch_and_used() -> None:
    x, y = own(), torch.empty(4)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)])
    y.mean()  # SW220
    for work in works:
        work.wait()


def coalesced_and_used() -> None:
    x, y = own(), own()
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    y.mul(2)  # SW220
    manager.wait()


def untyped_and_used() -> None:
    x = torch.randn(4)
    handle = dist.all_reduce(x, async_op=True)
    x.norm().item()  # SW220
    handle.wait()


def only_the_last_is_waited_for() -> None:
    x, y = own(), own()
    dist.all_reduce(x, async_op=True)
    handle = dist.all_reduce(y, async_op=True)
    handle.wait()
    x.sum()  # SW220


def filled_again() -> None:
    x = own()
    handle = dist.isend(x, 1)
    x.copy_(own())  # SW221
    handle.wait()


def written_while_summed() -> None:
    x = own()
    handle = dist.all_reduce(x, async_op=True)
    x.div_(2)  # SW221
    handle.wait()


def written_as_an_output() -> None:
    x = own()
    handle = dist.isend(x, 1)
    torch.add(own(), 1, out=x)  # SW221
    handle.wait()


def received_into_what_is_sent() -> None:
    x = own()
    handle = dist.isend(x, 1)
    dist.recv(x, 1)  # SW221
    handle.wait()


def thrown_away() -> None:
    x = own()
    dist.all_reduce(x, async_op=True)  # SW222


def send_thrown_away() -> None:
    dist.isend(own(), 1)  # SW222


def coalesced_and_thrown_away() -> None:
    x = own()
    with dist._coalescing_manager(async_ops=True):
        dist.all_reduce(x)  # SW222


def model() -> tuple[nn.Linear, torch.optim.Optimizer]:
    linear = nn.Linear(4, 4)
    spmd.assert_type(list(linear.parameters()), {"dp": R})
    return linear, torch.optim.SGD(linear.parameters(), 0.1)


def backward(linear: nn.Linear) -> None:
    x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0)})
    spmd.reinterpret(linear(x).square().sum(), "dp", src=V, dst=P).backward()


def step_before_wait() -> None:
    linear, optimizer = model()
    backward(linear)
    handles = [dist.all_reduce(parameter.grad, async_op=True) for parameter in linear.parameters()]
    handles[0].wait()
    optimizer.step()  # SW220
    handles[1].wait()


def clipped_before_wait() -> None:
    linear, _ = model()
    backward(linear)
    handles = [dist.all_reduce(parameter.grad, async_op=True) for parameter in linear.parameters()]
    nn.utils.clip_grad_norm_(linear.parameters(), 1.0, foreach=False)  # SW220
    for handle in handles:
        handle.wait()


def backward_before_wait() -> None:
    linear, _ = model()
    backward(linear)
    handle = dist.all_reduce(linear.bias.grad, async_op=True)
    x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0)})
    loss = spmd.reinterpret(linear(x).square().sum(), "dp", src=V, dst=P)
    loss.backward()  # SW221
    handle.wait()


WRONG: list[Program] = [
    used_after_reduce,
    used_through_a_view,
    used_after_gather,
    used_piece_of_a_list,
    sent_on,
    received_and_used,
    batch_and_used,
    coalesced_and_used,
    untyped_and_used,
    only_the_last_is_waited_for,
    filled_again,
    written_while_summed,
    written_as_an_output,
    received_into_what_is_sent,
    thrown_away,
    send_thrown_away,
    coalesced_and_thrown_away,
    step_before_wait,
    clipped_before_wait,
    backward_before_wait,
]


def looked_at_meanwhile() -> None:
    x = own(4, 4)
    handle = dist.all_reduce(x, async_op=True)
    assert x.shape == (4, 4)
    assert x.is_contiguous()
    rows = x.view(16)[2:]
    torch.empty_like(x)
    handle.wait()
    rows.sum()


def read_while_it_is_sent() -> None:
    x = own()
    handle = dist.isend(x, 1)
    x.sum()
    handle.wait()


def other_parts_meanwhile() -> None:
    buffer = own(8)
    handle = dist.all_reduce(buffer[:4], async_op=True)
    buffer[4:].mul_(2)
    handle.wait()
    buffer[:4].sum()


def other_work_meanwhile() -> None:
    x, w = own(4, 4), spmd.assert_type(torch.randn(4, 4), {"dp": R})
    whole = torch.empty(8, 4)
    handle = dist.all_gather_into_tensor(whole, x, async_op=True)
    y = x @ w
    handle.wait()
    y.sum() + (whole @ w).sum()


def every_handle_in_a_list() -> None:
    linear, optimizer = model()
    for _ in range(2):
        backward(linear)
        for handle in [dist.all_reduce(parameter.grad, async_op=True) for parameter in linear.parameters()]:
            handle.wait()
        optimizer.step()
        optimizer.zero_grad()


def hooks_that_start_and_a_loop_that_waits() -> None:
    linear, optimizer = model()
    handles: list[Any] = []
    for parameter in linear.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: handles.append(dist.all_reduce(p.grad, async_op=True)))
    backward(linear)
    while handles:
        handles.pop().wait()
    optimizer.step()


def batch_of_messages() -> None:
    x, y = own(), torch.empty(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)]):
        work.wait()
    y.sum()


def coalesced_and_waited_for() -> None:
    x, y = own(), own()
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    with dist._coalescing_manager():
        dist.all_reduce(own())
    (x + y).sum()


def two_collectives_of_one_group() -> None:
    x, whole = own(8), torch.empty(8)
    piece = torch.empty(4)
    first = dist.reduce_scatter_tensor(piece, x, async_op=True)
    second = dist.all_gather_into_tensor(whole, piece, async_op=True)
    first.wait()
    second.wait()
    whole.sum()


def waited_for_by_a_future() -> None:
    x = own()
    dist.all_reduce(x, async_op=True).get_future().wait()
    x.sum()


def asked_until_done() -> None:
    x = own()
    handle = dist.all_reduce(x, async_op=True)
    while not handle.is_completed():
        pass
    x.sum()


def the_device_is_waited_for() -> None:
    x = own()
    dist.all_reduce(x, async_op=True)
    dist.barrier()
    x.sum()


def functional_ones_wait_by_themselves() -> None:
    x = functional.all_reduce(own(), "sum", dist.group.WORLD)
    x.sum()


RIGHT: list[Program] = [
    looked_at_meanwhile,
    read_while_it_is_sent,
    other_parts_meanwhile,
    other_work_meanwhile,
    every_handle_in_a_list,
    hooks_that_start_and_a_loop_that_waits,
    batch_of_messages,
    coalesced_and_waited_for,
    two_collectives_of_one_group,
    waited_for_by_a_future,
    asked_until_done,
    the_device_is_waited_for,
    functional_ones_wait_by_themselves,
]


def findings(program: Program, *, local: bool = True) -> tuple[Finding, ...]:
    collector = Collector()
    with checking(collect=collector, local=local):
        program()
    return tuple(one for one in collector.result().findings if local or one.code.startswith("SW22"))


def marked(program: Program) -> list[tuple[int, str]]:
    lines, first = inspect.getsourcelines(program)
    return [(first + at, line.rpartition("# ")[2].strip()) for at, line in enumerate(lines) if "# SW" in line]


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.__name__)
def test_it_is_a_finding_at_its_line(program: Program, local: bool) -> None:
    found = findings(program, local=local)
    assert [(one.location.line, one.code) for one in found if one.location is not None] == marked(program), found


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_what_waits_is_clean(program: Program, local: bool) -> None:
    assert findings(program, local=local) == ()


def test_a_handle_that_leaves_a_checked_block_may_be_waited_for_later() -> None:
    x = own()
    with typecheck():
        handle = dist.all_reduce(x, async_op=True)
    handle.wait()
    x = own()
    with pytest.raises(spmd.SpmdTypeError, match="nobody waits for this all_reduce"), typecheck():
        dist.all_reduce(x, async_op=True)


def train_while_another_sum_runs() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())
    handle = dist.all_reduce(own(), async_op=True)
    for _ in range(2):
        model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    assert handle is not None
    handle.wait()


def test_names_are_looked_up_for_findings_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a walk through all that is alive: a pipeline, whose sends are in flight at every backward, was slow."""
    looked: list[object] = []
    monkeypatch.setattr(gc, "get_objects", lambda: looked.append(1) or [])
    with typecheck("permissive"):
        train_while_another_sum_runs()
    assert not looked


def test_nothing_is_in_flight_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), typecheck():
        dist.all_reduce(own(), async_op=True)
        raise ZeroDivisionError
