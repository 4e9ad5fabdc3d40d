"""What do the tests of worlds run? Programs of one rank that return what they saw; every world must see the same."""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import numpy
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as autograd_collectives
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")


def own(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers that differ from rank to rank."""
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    return torch.randn(shape, generator=generator).mul(8).round().to(dtype)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full(shape, -99.0).to(dtype)


def reductions() -> list[Tensor]:
    n = dist.get_world_size()
    seen = []
    for op in OPS:
        x = own(2, 3)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        y = own(2)
        dist.reduce(y, n - 1, getattr(dist.ReduceOp, op))
        seen += [x, y] if dist.get_rank() == n - 1 else [x]
    for op in ("BAND", "BOR", "BXOR"):
        x = own(4, dtype=torch.int64)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        seen.append(x)
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8):
        x = own(3, dtype=dtype)
        dist.all_reduce(x)
        seen.append(x)
    transposed = own(2, 3).t()
    dist.all_reduce(transposed)
    scalar = own()
    dist.all_reduce(scalar)
    none = own(0, 2)
    dist.all_reduce(none)
    complex_one = torch.complex(own(2), own(2, seed=1))
    dist.all_reduce(complex_one)
    return [*seen, transposed, scalar, none, complex_one]


def gathering() -> list[Any]:
    n, rank = dist.get_world_size(), dist.get_rank()
    pieces = [empty(2, 3) for _ in range(n)]
    dist.all_gather(pieces, own(2, 3))
    stacked = empty(n * 2, 3)
    dist.all_gather_into_tensor(stacked, own(2, 3))
    in_place = empty(n * 2)
    mine = in_place[2 * rank : 2 * rank + 2].copy_(own(2))
    dist.all_gather_into_tensor(in_place, mine)
    gathered = [empty(2) for _ in range(n)] if rank == 1 else None
    dist.gather(own(2), gathered, dst=1)
    scattered = empty(2)
    dist.scatter(scattered, [own(2, seed=k) for k in range(n)] if rank == 1 else None, src=1)
    told = own(3)
    dist.broadcast(told, src=n - 1)
    return [pieces, stacked, in_place, gathered, scattered, told]


def scattering() -> list[Tensor]:
    n, rank = dist.get_world_size(), dist.get_rank()
    summed = empty(2)
    dist.reduce_scatter(summed, [own(2, seed=k) for k in range(n)])
    meant = empty(2, 3)
    dist.reduce_scatter_tensor(meant, own(2 * n, 3), dist.ReduceOp.MAX)
    swapped = [empty(2) for _ in range(n)]
    dist.all_to_all(swapped, [own(2, seed=k) for k in range(n)])
    even = empty(n, 2)
    dist.all_to_all_single(even, own(n, 2))
    sent, received = [(rank + k) % 3 for k in range(n)], [(k + rank) % 3 for k in range(n)]
    uneven = empty(sum(received), 2)
    dist.all_to_all_single(uneven, own(sum(sent), 2), received, sent)
    return [summed, meant, *swapped, even, uneven]


def layouts() -> list[Any]:
    """Tensors whose elements do not lie in order, where gloo sends and fills them in order all the same."""
    n = dist.get_world_size()
    seen: list[Any] = []
    for x in (own(2, 2).t(), own(2, 4)[:, ::2], own(2, 1).expand(2, 2)):
        gathered, stacked = [empty(2, 2) for _ in range(n)], empty(2 * n, 2)
        dist.all_gather(gathered, x)
        dist.all_gather_into_tensor(stacked, x)
        exchanged = [empty(2, 2) for _ in range(n)]
        dist.all_to_all(exchanged, [x] * n)
        seen += [gathered, stacked, exchanged]
    filled = [empty(4, 2).t() for _ in range(n)]
    dist.all_gather(filled, own(2, 4))
    told = own(2, 3).t()
    dist.broadcast(told, 1)
    return [*seen, filled, told]


def objects() -> list[Any]:
    n, rank = dist.get_world_size(), dist.get_rank()
    everything: list[Any] = [None] * n
    dist.all_gather_object(everything, {"rank": rank})
    told = [f"from {rank}", rank]
    dist.broadcast_object_list(told, src=1)
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [("for", k) for k in range(n)] if rank == 0 else None, src=0)
    collected = [None] * n if rank == 0 else None
    dist.gather_object(rank * 10, collected, dst=0)
    dist.monitored_barrier()
    return [everything, told, mine, collected]


def messages() -> list[Any]:
    n, rank = dist.get_world_size(), dist.get_rank()
    after, before = (rank + 1) % n, (rank - 1) % n
    ring = empty(3)
    works = [dist.isend(own(3), after), dist.irecv(ring, before)]
    for work in works:
        work.wait()
    batched = empty(2)
    exchange = [dist.P2POp(dist.irecv, batched, after), dist.P2POp(dist.isend, own(2, seed=1), before)]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    chain = own(2)
    if rank:
        source = dist.recv(chain, rank - 1)
        assert source == rank - 1
    if rank < n - 1:
        dist.send(chain + 1, rank + 1)
    tagged = [empty(1), empty(1)]
    if rank == 0:
        first, second = dist.isend(torch.tensor([1.0]), 1, tag=1), dist.isend(torch.tensor([2.0]), 1, tag=2)
        first.wait(), second.wait()
    elif rank == 1:
        other, one = dist.irecv(tagged[0], 0, tag=2), dist.irecv(tagged[1], 0, tag=1)
        other.wait(), one.wait()
    anyone = empty(2)
    if rank == 0:
        dist.recv(anyone)
    elif rank == 1:
        dist.send(own(2), 0)
    return [ring, batched, chain, tagged, anyone]


def asynchronous() -> list[Any]:
    x, y = own(2), own(3)
    first, second = dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)
    second.wait()
    first.wait()
    z = own(2)
    work = dist.all_reduce(z, async_op=True)
    while not work.is_completed():
        pass
    future = dist.all_reduce(own(2), async_op=True).get_future()
    return [x, y, z, *future.wait()]


def coalesced() -> list[Tensor]:
    n = dist.get_world_size()
    xs = [own(2), own(3, seed=1)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    gathered = functional.all_gather_into_tensor_coalesced([own(2), own(3)], dist.group.WORLD)
    scattered = functional.reduce_scatter_tensor_coalesced([own(2 * n), own(3 * n)], "sum", [0, 0], dist.group.WORLD)
    reduced = functional.all_reduce_coalesced([own(2), own(3)], "max", dist.group.WORLD)
    return [*xs, *(x + 0 for x in [*gathered, *scattered, *reduced])]


def functionals() -> list[Tensor]:
    n, world = dist.get_world_size(), dist.group.WORLD
    assert world is not None
    seen = [
        functional.all_reduce(own(2), "sum", world),
        functional.all_gather_tensor(own(2, 3), 1, world),
        functional.reduce_scatter_tensor(own(2, 2 * n), "sum", 1, world),
        functional.all_to_all_single(own(n, 2), None, None, world),
        functional.broadcast(own(2), 1, world),
        functional.permute_tensor(own(2), [(k + 1) % n for k in range(n)], world),
    ]
    x = own(2, 2).requires_grad_()
    y = functional.all_gather_tensor_autograd(x, 0, world)
    y = functional.all_to_all_single_autograd(y, [2] * n, [2] * n, world)
    y = functional.reduce_scatter_tensor_autograd(y.sin(), "sum", 0, world)
    (y * own(2, 2, seed=2)).sum().backward()
    assert x.grad is not None
    return [*(one + 0 for one in seen), y.detach(), x.grad]


def differentiable() -> list[Tensor]:
    """The collectives with a backward of ``torch.distributed.nn``, twice through one backward pass."""
    n = dist.get_world_size()
    x = own(2, 2).requires_grad_()
    summed = autograd_collectives.all_reduce(x.sin())
    gathered = torch.stack(autograd_collectives.all_gather(summed * x))
    exchanged = autograd_collectives.all_to_all_single(torch.zeros(n, 2), gathered[:, 0].contiguous())
    told = autograd_collectives.broadcast(exchanged.cos(), 1)
    checkpointed = checkpoint(lambda y: autograd_collectives.all_reduce(y.tanh()), told, use_reentrant=False)
    (checkpointed * own(n, 2, seed=3)).sum().backward()
    assert x.grad is not None
    return [summed.detach(), checkpointed.detach(), x.grad]


def groups() -> list[Any]:
    n, rank = dist.get_world_size(), dist.get_rank()
    seen: list[Any] = []
    for ranks in ([0, n - 1], list(range(1, n)), list(range(n))):
        group = dist.new_group(ranks)
        if rank in ranks:
            x = own(2)
            dist.all_reduce(x, group=group)
            told = own(2)
            dist.broadcast(told, src=ranks[-1], group=group)
            seen += [dist.get_rank(group), dist.get_process_group_ranks(group), x, told]
    halves, _ = dist.new_subgroups(n // 2)
    x = own(1)
    dist.all_reduce(x, group=halves)
    alone = dist.new_group([rank], use_local_synchronization=True)
    y = own(1)
    dist.all_reduce(y, group=alone)
    return [*seen, x, y, dist.get_backend(), dist.get_world_size(halves)]


def meshes() -> list[Any]:
    n = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("dp", "tp"))
    seen: list[Any] = [mesh.get_coordinate(), mesh["tp"].get_local_rank()]
    for part in (mesh["dp"], mesh["tp"], mesh["dp", "tp"]._flatten("all")):
        x = own(2)
        dist.all_reduce(x, group=part.get_group())
        seen.append(x)
    weight = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Replicate(), Shard(1)])
    x = distribute_tensor(torch.arange(16.0).view(4, 4).sin(), mesh, [Shard(0), Replicate()]).requires_grad_()
    y = (x @ weight).redistribute(mesh, [Replicate(), Replicate()])
    y.square().sum().backward()
    return [*seen, y.to_local().detach(), x.grad.full_tensor()]


def wrappers() -> list[Tensor]:
    torch.manual_seed(0)
    built = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2)]
    parallel = nn.parallel.DistributedDataParallel(built[0])
    for module in (built[1][0], built[1][2], built[1]):
        fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    x = own(3, 4)
    parallel(x).sum().backward()
    built[1](x).sum().backward()
    plain = [p.grad for p in built[0].parameters() if p.grad is not None]
    return [*plain, *(p.grad.full_tensor() for p in built[1].parameters())]


def tensor_parallel_steps() -> list[Any]:
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(2):
        x = torch.randn(2, 4, generator=torch.Generator().manual_seed(step + mesh["dp"].get_local_rank()))
        loss = model(x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [loss.detach(), norm.full_tensor(), *(p.full_tensor().detach() for p in model.parameters())]


def pipeline() -> list[Any]:
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4) for _ in range(n)]
    stage = PipelineStage(layers[rank], rank, n, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n, loss_fn=lambda y, target: (y - target).square().mean())
    x = torch.randn(2 * n, 4, generator=torch.Generator().manual_seed(1))
    losses: list[Tensor] = []
    if rank == 0:
        schedule.step(x)
    elif rank == n - 1:
        schedule.step(target=x, losses=losses)
    else:
        schedule.step()
    return [*(p.grad for p in layers[rank].parameters()), *(loss.detach() for loss in losses)]


def random_numbers() -> list[Any]:
    """torch goes on from the caller's numbers on every rank; what one rank draws leaves the others alone."""
    rank = dist.get_rank()
    seen: list[Any] = [torch.rand(2), random.random(), numpy.random.rand()]
    if rank == 1:
        torch.manual_seed(7)
        random.seed(7)
        numpy.random.seed(7)
        torch.set_default_dtype(torch.float64)
    dist.barrier()
    seen += [torch.rand(2), random.random(), numpy.random.rand(), torch.get_default_dtype()]
    dist.barrier()
    torch.manual_seed(3)
    dist.barrier()
    return [*seen, torch.randn(2), torch.initial_seed()]


def environment() -> list[Any]:
    rank = int(os.environ["RANK"])
    dist.barrier()
    os.environ["LOCAL_RANK"] = str(10 + rank)
    dist.barrier()
    return [rank == dist.get_rank(), int(os.environ["RANK"]), os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"]]


def quietly(program: Any) -> Any:
    """The same in whatever names of functions torch has come to prefer."""
    warnings.simplefilter("ignore", FutureWarning)
    return program()


PROGRAMS = (
    reductions, gathering, scattering, layouts, objects, messages, asynchronous, coalesced, functionals, differentiable,
    groups, meshes, wrappers, tensor_parallel_steps, pipeline, random_numbers, environment,
)  # fmt: skip
