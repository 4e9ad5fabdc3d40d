"""Steps that each rank takes for its part of one flat buffer (ZeRO 1 by hand): what differs in its numbers is found.

Every way runs twice: with numbers on ranks that share a process, compared with one device, and under the checker.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector, RunResult
from shardwise.worlds.world import FakeWorld, InProcessWorld

RANKS, SIZE = 2, 32
Sum = Callable[[Tensor, Tensor], object]
Own = Callable[[Tensor, int, int], Tensor]
Gather = Callable[[Tensor, Tensor, int, int], object]


def summed(mine: Tensor, gradients: Tensor) -> None:
    dist.reduce_scatter_tensor(mine, gradients)


def averaged(mine: Tensor, gradients: Tensor) -> None:
    dist.reduce_scatter_tensor(mine, gradients, op=dist.ReduceOp.AVG)


def put_in_place(flat: Tensor, own: Tensor, rank: int, share: int) -> None:
    flat[rank * share : (rank + 1) * share] = own


def gathered(flat: Tensor, own: Tensor, rank: int, share: int) -> None:
    dist.all_gather_into_tensor(flat, own)


def own_part(flat: Tensor, rank: int, share: int) -> Tensor:
    return flat[rank * share : (rank + 1) * share].clone()


def first_part(flat: Tensor, rank: int, share: int) -> Tensor:
    return flat[:share].clone()


def trained(reduce: Sum, own_of: Own, gather: Gather, divisor: Callable[[Tensor], object]) -> list[Tensor]:
    """The parameters of a linear layer after two steps with momentum, on each rank's part of the batch."""
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    rank, share = mesh.get_local_rank("dp"), SIZE // ranks
    draw = torch.Generator().manual_seed(5)
    batch, targets = torch.randn(8, 6, generator=draw), torch.randn(8, 4, generator=draw)
    flat = torch.randn(SIZE, generator=draw)
    with spmd.set_current_mesh(mesh):
        x, y = (spmd.assert_type(one.chunk(ranks)[dist.get_rank()].clone(), {"dp": S(0)}) for one in (batch, targets))
        spmd.assert_type(flat, {"dp": R})
        w = spmd.assert_type(flat[:24].view(6, 4).clone().requires_grad_(), {"dp": R})
        b = spmd.assert_type(flat[24:28].clone().requires_grad_(), {"dp": R})
        gradients, momentum = torch.zeros(SIZE), torch.zeros(share)
        for _ in range(2):
            w.grad = b.grad = None
            off = torch.addmm(b, x, w) - y
            (off.square().sum() / divisor(off)).backward()
            gradients[:24].copy_(w.grad.view(-1))  # type: ignore[union-attr]
            gradients[24:28].copy_(b.grad)  # type: ignore[arg-type]
            mine = torch.empty(share)
            reduce(mine, gradients)
            momentum.mul_(0.9).add_(mine)
            own = own_of(flat, rank, share)
            own.sub_(momentum, alpha=0.1)
            gather(flat, own, rank, share)
            with torch.no_grad():
                w.copy_(flat[:24].view(6, 4))
                b.copy_(flat[24:28])
        return [w.detach(), b.detach()]


def of_all(off: Tensor) -> object:
    return off.numel() * dist.get_world_size()


def of_this_rank(off: Tensor) -> object:
    return off.numel()


Way = tuple[Sum, Own, Gather, Callable[[Tensor], object]]
WAYS: dict[str, tuple[Way, set[str]]] = {
    "right": ((summed, own_part, gathered, of_all), set()),
    "the average of what is divided by all": ((averaged, own_part, gathered, of_all), {"SW150"}),
    "a mean over the rank's own rows": ((summed, own_part, gathered, of_this_rank), {"SW150"}),
    "an average of means": ((averaged, own_part, gathered, of_this_rank), set()),
    "the first part on every rank": ((summed, first_part, gathered, of_all), {"SW402"}),
    "not gathered": ((summed, own_part, put_in_place, of_all), {"SW120", "SW408"}),
}


def checked(way: Way) -> RunResult:
    collector = Collector()

    def program() -> None:
        with checking(collect=collector, local=False):
            trained(*way)

    FakeWorld(RANKS, 1).run(program)
    return collector.result()


@pytest.mark.parametrize("name", WAYS)
def test_a_way_is_clean_if_its_numbers_are_those_of_one_device(name: str) -> None:
    way, codes = WAYS[name]
    one = InProcessWorld(1).run(lambda: trained(*WAYS["right"][0]))[0]
    ranks = InProcessWorld(RANKS).run(lambda: trained(*way))
    same = all(torch.allclose(found, meant, atol=1e-5) for own in ranks for found, meant in zip(own, one, strict=True))
    assert same is not bool(codes)
    found = {finding.code for finding in checked(way).findings}
    assert found <= codes
    assert bool(found) is bool(codes)
