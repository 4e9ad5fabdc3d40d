"""Gradients that are summed piece by piece: is what differs in its numbers found, and is what is right clean?

Each way of summing runs twice: with numbers on ranks that share a process, compared with one device, and under the
checker. The two must say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import I, P, R, S, V
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.worlds.world import FakeWorld, InProcessWorld

RANKS = 2
Parameters = list[torch.Tensor]
Way = Callable[[Parameters], None]
Wrong = tuple[str, str, str]


class Net(nn.Module):
    """Three parameters of 12, 4 and 8 elements."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.w = nn.Parameter(torch.randn(4, 3, generator=generator))
        self.b = nn.Parameter(torch.randn(4, generator=generator))
        self.v = nn.Parameter(torch.randn(2, 4, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(torch.tanh(nn.functional.linear(x, self.w, self.b)), self.v)


def batch() -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(7))


def sizes(parameters: Parameters) -> list[int]:
    return [parameter.numel() for parameter in parameters]


def starts(parameters: Parameters) -> list[int]:
    return [sum(sizes(parameters)[:at]) for at in range(len(parameters))]


def joined(parameters: Parameters) -> torch.Tensor:
    return torch.cat([parameter.grad.view(-1) for parameter in parameters])  # type: ignore[union-attr]


def put_back(parameters: Parameters, flat: torch.Tensor) -> None:
    for parameter, piece in zip(parameters, flat.split(sizes(parameters)), strict=True):
        parameter.grad.copy_(piece.view_as(parameter))  # type: ignore[union-attr]


def cat_split(parameters: Parameters) -> None:
    flat = joined(parameters)
    dist.all_reduce(flat)
    put_back(parameters, flat)


def in_chunks(parameters: Parameters, size: int = 7, last: int = 24) -> None:
    flat = joined(parameters)
    for start in range(0, last, size):
        dist.all_reduce(flat[start : start + size])
    put_back(parameters, flat)


def handles(parameters: Parameters) -> None:
    flat = joined(parameters)
    for work in [dist.all_reduce(flat[start : start + 8], async_op=True) for start in range(0, 24, 8)]:
        work.wait()
    put_back(parameters, flat)


def apex(parameters: Parameters, skipped: int = 0) -> None:
    gradients = [parameter.grad.data for parameter in parameters][skipped:]  # type: ignore[union-attr]
    flat = torch._utils._flatten_dense_tensors(gradients)
    dist.all_reduce(flat)
    for gradient, piece in zip(gradients, torch._utils._unflatten_dense_tensors(flat, gradients), strict=True):
        gradient.copy_(piece)


def foreach_copies(parameters: Parameters) -> None:
    gradients = [parameter.grad for parameter in parameters]
    flat = torch._utils._flatten_dense_tensors(gradients)
    dist.all_reduce(flat[:12])
    dist.all_reduce(flat[12:])
    torch._foreach_copy_(gradients, torch._utils._unflatten_dense_tensors(flat, gradients))


def megatron(parameters: Parameters, buckets: list[tuple[int, int]] | None = None, *, widened: bool = False) -> None:
    """Gradients are added up in one buffer, whose buckets are summed, and enter the step as views of it."""
    dtype = torch.float64 if widened else torch.float32
    buffer = torch.zeros(24, dtype=dtype)
    mains = [
        buffer[at : at + parameter.numel()].view(parameter.shape)
        for at, parameter in zip(starts(parameters), parameters, strict=True)
    ]
    for main, parameter in zip(mains, parameters, strict=True):
        main.add_(parameter.grad.data)  # type: ignore[union-attr]
        parameter.grad = None
    buffer.mul_(0.5)
    for first, last in buckets or [(0, 12), (12, 24)]:
        dist.all_reduce(buffer[first:last])
    buffer.mul_(2.0)
    for main, parameter in zip(mains, parameters, strict=True):
        parameter.grad = main.float() if widened else main


def deepspeed(parameters: Parameters, offsets: list[int] | None = None) -> None:
    """Gradients are put into a reused buffer, whose partitions are summed one by one."""
    buffer = torch.empty(24)
    places = offsets or starts(parameters)
    for at, parameter in zip(places, parameters, strict=True):
        piece = buffer.narrow(0, at, parameter.numel())
        piece.copy_(parameter.grad.view(-1))  # type: ignore[union-attr]
        parameter.grad.data = piece.data.view_as(parameter)  # type: ignore[union-attr]
    for first, last in ((0, 16), (16, 24)):
        part = buffer.narrow(0, first, last - first)
        dist.all_reduce(part)


def assigned_parts(parameters: Parameters, shift: int = 0) -> None:
    buffer = torch.zeros(24)
    for at, parameter in zip(starts(parameters), parameters, strict=True):
        buffer[at : at + parameter.numel()] = parameter.grad.view(-1)  # type: ignore[union-attr]
    dist.all_reduce(buffer)
    for at, parameter in zip(starts(parameters), parameters, strict=True):
        first = max(0, at - shift)
        parameter.grad = buffer[first : first + parameter.numel()].view_as(parameter).clone()


def scattered_and_gathered(parameters: Parameters) -> None:
    flat = joined(parameters)
    own = torch.empty(24 // RANKS)
    dist.reduce_scatter_tensor(own, flat)
    whole = torch.empty(24)
    dist.all_gather_into_tensor(whole, own)
    put_back(parameters, whole)


def rows(parameters: Parameters, count: int = 4) -> None:
    dist.all_reduce(parameters[0].grad[:2])  # type: ignore[index]
    dist.all_reduce(parameters[0].grad[2:count])  # type: ignore[index]
    for parameter in parameters[1:]:
        dist.all_reduce(parameter.grad)


def columns(parameters: Parameters) -> None:
    """Half of each row, through a copy, because a collective takes contiguous memory only."""
    gradient: Any = parameters[0].grad
    for piece in (gradient[:, :1], gradient[:, 1:]):
        sent = piece.contiguous()
        dist.all_reduce(sent)
        piece.copy_(sent)
    for parameter in parameters[1:]:
        dist.all_reduce(parameter.grad)


def one_column(parameters: Parameters) -> None:
    gradient: Any = parameters[0].grad
    sent = gradient[:, :1].contiguous()
    dist.all_reduce(sent)
    gradient[:, :1].copy_(sent)
    for parameter in parameters[1:]:
        dist.all_reduce(parameter.grad)


def unpacked_at_the_wrong_place(parameters: Parameters) -> None:
    flat = joined(parameters)
    dist.all_reduce(flat)
    for at, parameter in zip([0, 8, 16], parameters, strict=True):
        parameter.grad.copy_(flat[at : at + parameter.numel()].view_as(parameter))  # type: ignore[union-attr]


def unpacked_in_another_order(parameters: Parameters) -> None:
    flat = joined(parameters)
    dist.all_reduce(flat)
    at = 0
    for parameter in (parameters[0], parameters[2], parameters[1]):
        parameter.grad.copy_(flat[at : at + parameter.numel()].view_as(parameter))  # type: ignore[union-attr]
        at += parameter.numel()


def summed_before_and_in_the_bucket(parameters: Parameters) -> None:
    dist.all_reduce(parameters[1].grad)
    cat_split(parameters)


def coalesced(parameters: Parameters) -> None:
    flat = joined(parameters)
    with dist._coalescing_manager():
        for start in range(0, 24, 8):
            dist.all_reduce(flat[start : start + 8])
    put_back(parameters, flat)


RIGHT: dict[str, Way] = {
    "cat, split, copy back": cat_split,
    "chunks across the parameters": in_chunks,
    "a handle per chunk": handles,
    "flattened": apex,
    "foreach copies": foreach_copies,
    "main gradients in a buffer": megatron,
    "wide main gradients": lambda parameters: megatron(parameters, widened=True),
    "buckets across the parameters": lambda parameters: megatron(parameters, [(0, 5), (5, 17), (17, 24)]),
    "partitions of a reused buffer": deepspeed,
    "assigned parts": assigned_parts,
    "scattered and gathered": scattered_and_gathered,
    "rows": rows,
    "columns": columns,
    "coalesced": coalesced,
}

WRONG: dict[str, tuple[Way, str, str]] = {
    "a missed bucket": (lambda p: megatron(p, [(0, 12)]), "SW608", "b, v"),
    "half a bucket missed": (lambda p: megatron(p, [(0, 12), (12, 20)]), "SW608", "elements 4 to 7 of 8"),
    "a bucket summed twice": (lambda p: megatron(p, [(0, 12), (12, 24), (0, 12)]), "SW605", "buffer[first:last]"),
    "buckets that overlap": (lambda p: megatron(p, [(0, 12), (8, 24)]), "SW605", "elements 0 to 3 of 16"),
    "a gap between buckets": (lambda p: megatron(p, [(0, 10), (12, 24)]), "SW608", "elements 10 to 11 of 12"),
    "the last chunk is left out": (lambda p: in_chunks(p, 7, 20), "SW608", "elements 5 to 7 of 8"),
    "a gradient left out of the bucket": (lambda p: apex(p, 1), "SW608", "w"),
    "half a row": (lambda p: rows(p, 3), "SW608", "elements 9 to 11 of 12"),
    "one column": (one_column, "SW608", "elements 1 to 2 and 4 to 5 and 7 to 8 and 1 more ranges of 12"),
    "summed before and in the bucket": (summed_before_and_in_the_bucket, "SW605", "elements 12 to 15 of 24"),
    "a wrong offset when unpacked": (unpacked_at_the_wrong_place, "SW614", "elements 8 to 11 of the gradient of w"),
    "another order when unpacked": (unpacked_in_another_order, "SW614", "of the gradient of"),
    "parts read too early": (lambda p: assigned_parts(p, 2), "SW614", "of the gradient of w"),
    "places that overlap": (lambda p: deepspeed(p, [0, 12, 14]), "SW614", "of the gradient of v"),
}


def summed(way: Way | None) -> list[torch.Tensor]:
    """The gradients that enter the step on this rank; those of the whole batch on one device without a ``way``."""
    net, x = Net(), batch()
    if way is not None:
        x = x.chunk(RANKS)[dist.get_rank()]
    net(x).square().sum().backward()
    parameters = list(net.parameters())
    if way is not None:
        way(parameters)
    return [parameter.grad.clone() for parameter in parameters]  # type: ignore[union-attr]


def is_right(way: Way) -> bool:
    with torch.random.fork_rng():
        wanted = summed(None)
        found = InProcessWorld(RANKS).run(summed, way)
    return all(torch.allclose(a, b, atol=1e-5) for ranks in found for a, b in zip(ranks, wanted, strict=True))


def check(way: Way, *, local: bool = True, rank: int = 0) -> RunResult:
    def program() -> None:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        with spmd.set_current_mesh(mesh), checking(collect=collector, local=local):
            net = Net()
            spmd.assert_type(list(net.parameters()), {"dp": R})
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for _ in range(2):
                x = spmd.assert_type(torch.randn(2, 3), {"dp": S(0)})
                loss = net(x).square().sum()
                if local:
                    loss = spmd.reinterpret(loss, "dp", src=V, dst=P)
                loss.backward()
                way(list(net.parameters()))
                optimizer.step()
                optimizer.zero_grad()

    collector = Collector()
    FakeWorld(RANKS, rank).run(program)
    return collector.result()


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_way_is_clean(name: str, local: bool) -> None:
    for rank in range(RANKS):
        result = check(RIGHT[name], local=local, rank=rank)
        assert not result.findings, [str(finding) for finding in result.findings]
        assert not result.lost


@pytest.mark.slow_but_one_in(4)
@pytest.mark.one_in(3)
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_way_is_a_finding_that_names_the_elements(name: str, local: bool) -> None:
    way, code, words = WRONG[name]
    for rank in range(RANKS):
        result = check(way, local=local, rank=rank)
        assert {finding.code for finding in result.findings} == {code}, [str(finding) for finding in result.findings]
        assert words in str(result.findings[0]), str(result.findings[0])


@pytest.mark.processes
@pytest.mark.parametrize("name", RIGHT)
def test_the_numbers_of_a_right_way_are_those_of_one_device(name: str) -> None:
    assert is_right(RIGHT[name])


@pytest.mark.processes
@pytest.mark.parametrize("name", WRONG)
def test_the_numbers_of_a_wrong_way_are_not(name: str) -> None:
    assert not is_right(WRONG[name][0])


# A weight that is split along its second dim: no dim of the bucket is cut, and the bucket may be summed all the same.


def gathered_by(rows: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Parameters, Any], None]:
    def way(parameters: Parameters, group: Any) -> None:
        flat = torch.cat([rows(parameter.grad) for parameter in parameters])  # type: ignore[arg-type]
        dist.all_reduce(flat, group=group)
        put_back(parameters, flat)

    return way


def one_by_one(parameters: Parameters, group: Any) -> None:
    for parameter in parameters:
        dist.all_reduce(parameter.grad.view(-1), group=group)  # type: ignore[union-attr]


def in_a_buffer(parameters: Parameters, group: Any, last: int = 24) -> None:
    flat = torch.zeros(24)
    for parameter, start in zip(parameters, starts(parameters), strict=True):
        flat[start : start + parameter.numel()].copy_(parameter.grad.view(-1))  # type: ignore[union-attr]
    dist.all_reduce(flat[:last], group=group)
    put_back(parameters, flat)


def divided(parameters: Parameters, group: Any) -> None:
    for parameter in parameters:
        row = parameter.grad.view(-1)  # type: ignore[union-attr]
        row.div_(2)
        dist.all_reduce(row, group=group)
        row.mul_(2)


SPLIT: dict[str, tuple[Callable[[Parameters, Any], None], list[str]]] = {
    "cat of views": (gathered_by(lambda gradient: gradient.view(-1)), []),
    "cat of rows": (gathered_by(torch.ravel), []),
    "cat of copies": (gathered_by(lambda gradient: gradient.mul(1).reshape(-1)), []),
    "cat in another dtype": (gathered_by(lambda gradient: gradient.flatten().double()), []),
    "one by one": (one_by_one, []),
    "a buffer": (in_a_buffer, []),
    "divided": (divided, []),
    "nothing": (lambda parameters, group: None, ["SW608"]),
    "the last ones missed": (lambda parameters, group: in_a_buffer(parameters, group, 20), ["SW608"]),
    "one missed": (lambda parameters, group: one_by_one(parameters[1:], group), ["SW608"]),
    "twice": (lambda p, group: [one_by_one(p, group) for _ in range(2)] and None, ["SW605"]),
}


def split_step(way: Callable[[Parameters, Any], None]) -> RunResult:
    def program() -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        with spmd.set_current_mesh(mesh), checking(collect=collector, local=False):
            w, v = nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(3, 4))
            spmd.assert_type(w, {"dp": R, "tp": S(1)})
            spmd.assert_type(v, {"dp": R, "tp": S(0)})
            x = spmd.assert_type(torch.randn(2, 4), {"dp": S(0), "tp": R})
            y = spmd.linear(torch.tanh(nn.functional.linear(x, v)), w, out_partial_axes=("tp",))
            spmd.all_reduce(y, "tp", src=P, dst=I).square().sum().backward()
            way([w, v], mesh.get_group("dp"))
            torch.optim.SGD([w, v], 0.1).step()

    collector = Collector()
    FakeWorld(4, 1).run(program)
    return collector.result()


@pytest.mark.parametrize("name", SPLIT)
def test_a_bucket_holds_what_is_split_along_any_dim(name: str) -> None:
    way, codes = SPLIT[name]
    result = split_step(way)
    assert [finding.code for finding in result.findings] == codes, [str(finding) for finding in result.findings]
    scale = ["the scale over dp and tp of what SGD.step takes, by a factor of unknown origin"]
    assert [one.what for one in result.lost] == (scale if name == "divided" else []), "by 2, which may be any 2"


def test_a_parameter_without_a_name_is_told_by_its_place_in_the_optimizer(tp_mesh: Any) -> None:
    held = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    spmd.assert_type(held, {"tp": R})
    with checking(collect=(collector := Collector())):
        x = spmd.assert_type(torch.ones(3), {"tp": V})
        spmd.reinterpret((held[1] * x).sum(), "tp", src=V, dst=P).backward()
        torch.optim.SGD(held, 0.1).step()
    (finding,) = collector.result().findings
    assert "the gradient of parameter 1 of shape [3], which is not summed over tp" in str(finding)
