"""Programs that move gradients and parameters by hand, typed as ``infer`` types them: right ones have no finding, and a
twin with one change has.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import shardwise as spmd
from shardwise import R, S
from shardwise.checker.scopes.activation import checking
from shardwise.diagnostics.result import Collector
from shardwise.worlds.world import FakeWorld

RANKS = 2
DDP = nn.parallel.DistributedDataParallel


class Gathered(torch.autograd.Function):
    """A weight that the ranks share out, whole for one use; backward averages."""

    @staticmethod
    def forward(ctx: Any, shard: torch.Tensor) -> torch.Tensor:
        whole = shard.new_empty(shard.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(whole, shard.contiguous())
        return whole

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        own = grad.new_empty(grad.numel() // dist.get_world_size())
        dist.reduce_scatter_tensor(own, grad.contiguous())
        return own / dist.get_world_size()


class AllRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, x.contiguous())
        return torch.cat(rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


class FromNeighbour(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, to: int, whence: int, x: torch.Tensor) -> torch.Tensor:
        ctx.ways = to, whence
        into = torch.zeros_like(x)
        both = [dist.P2POp(dist.isend, x.contiguous(), to), dist.P2POp(dist.irecv, into, whence)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        return into

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return None, None, FromNeighbour.apply(*reversed(ctx.ways), grad)


def ring_sum(flat: torch.Tensor) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    chunks = list(flat.chunk(world))
    for turn in range(2 * (world - 1)):
        first, step = turn < world - 1, turn % (world - 1)
        out, at = (rank + (not first) - step) % world, (rank - first - step) % world
        into = torch.empty_like(chunks[0])
        both = [dist.P2POp(dist.isend, chunks[out].contiguous(), (rank + 1) % world)]
        for work in dist.batch_isend_irecv([*both, dist.P2POp(dist.irecv, into, (rank - 1) % world)]):
            work.wait()
        chunks[at].add_(into) if first else chunks[at].copy_(into)
    return flat


def gradients_in_a_ring(sum: Any = ring_sum) -> None:
    model, optimizer = trained()
    flat = sum(torch.cat([p.grad.flatten() for p in model.parameters()])) / dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()
    optimizer.step()


def error_feedback(*, sent: str = "mean") -> None:
    model, _ = trained()
    with torch.no_grad():
        for p in model.parameters():
            m = p.grad + torch.zeros_like(p)
            update = m.clone()
            dist.all_reduce(update)
            update /= dist.get_world_size()
            _ = m - (update if sent == "mean" else 0.1 * p)


def low_rank(*, whole: bool = True) -> None:
    """What is sent is made of the gradient and of numbers of which nothing is known."""
    model, _ = trained()
    with torch.no_grad():
        p = next(model.parameters())
        q = torch.randn(p.shape[1], 2, generator=torch.Generator().manual_seed(1))
        left = p.grad @ q
        dist.all_reduce(left)
        update = torch.linalg.qr(left).Q @ q.t()
        _ = p.grad - (update if whole else p)


def owner_steps(*, sends: bool = True) -> None:
    model, _ = trained()
    for p in model.parameters():
        dist.reduce(p.grad, dst=0)
        with torch.no_grad():
            if dist.get_rank() == 0:
                p.sub_(0.1 * p.grad / dist.get_world_size())
        if sends:
            dist.broadcast(p.data, src=0)


def one_loss_on_every_rank(*, divisor: int = 1) -> None:
    model = DDP(typed(nn.Linear(4, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    z = AllRows.apply(model(data()))
    loss = (z @ z.t()).square().mean()
    (loss / dist.get_world_size() if divisor > 1 else loss).backward()
    optimizer.step()


def gathered_and_averaged(*, norm: bool = True) -> None:
    weight = spmd.assert_type(nn.Parameter(torch.randn(8)), {dist.group.WORLD: S(0)})
    optimizer = torch.optim.SGD([weight], lr=0.1)
    whole = Gathered.apply(weight).view(4, 4)
    nn.functional.linear(data(), whole).square().mean().backward()
    squares = weight.grad.square().sum()
    if norm:
        dist.all_reduce(squares)
    weight.grad.mul_((1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0))
    optimizer.step()


def inner_steps(*, outer_sum: bool = True) -> None:
    model = typed(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = dict(model.named_parameters())
    loss = torch.func.functional_call(model, parameters, (data(),)).square().mean()
    grads = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    fast = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), grads, strict=True)}
    torch.func.functional_call(model, fast, (data(),)).square().mean().backward()
    for p in model.parameters() if outer_sum else ():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()


def pairs_in_a_ring(*, goes_round: bool = True) -> None:
    model = DDP(typed(nn.Linear(4, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    a, b = model(data()), model(data())
    rank, world = dist.get_rank(), dist.get_world_size()
    loss = (a @ b.t()).exp().sum() / len(a)
    if goes_round:
        loss = loss + (a @ FromNeighbour.apply((rank + 1) % world, (rank - 1) % world, b).t()).exp().sum() / len(a)
    loss.backward()
    optimizer.step()


class Scan(nn.Module):
    """A recurrence over a sequence that is cut: each rank scans its part, and adds what comes from those before."""

    def __init__(self) -> None:
        super().__init__()
        self.passes_on = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = torch.zeros_like(x[0]), []
        for row in range(len(x)):
            state = 0.5 * state + x[row]
            states.append(state)
        own = torch.stack(states)
        if not self.passes_on:
            return own
        ends = AllRows.apply(state[None])
        before = sum(ends[: dist.get_rank()], torch.zeros_like(state))
        return own + before


def scan_of_parts(*, passes_on: bool = True) -> None:
    scan = Scan()
    scan.passes_on = passes_on
    loss = scan(data()).square().mean()
    dist.all_reduce(loss.detach())


def experts_pick_rows(*, sums: bool = True) -> None:
    """Each rank's column of the scores picks rows; what the experts make of them is summed."""
    scores = typed(nn.Linear(4, RANKS))(spmd.assert_type(torch.randn(6, 4), {dist.group.WORLD: R}))
    rows = scores[:, dist.get_rank()].topk(2).indices
    out = torch.zeros(6, 4).index_add(0, rows, torch.randn(2, 4))
    if sums:
        dist.all_reduce(out)
    _ = out.square()


def counts_are_exchanged(*, dtype: torch.dtype = torch.int64) -> None:
    """How many rows go to each rank, counted, kept for all ranks and told to all."""
    load = torch.zeros(RANKS)
    chosen = typed(nn.Linear(4, RANKS))(data()).argmax(-1)
    counts = nn.functional.one_hot(chosen, RANKS).sum(0)
    load += counts
    told = torch.empty(RANKS, dtype=dtype)
    dist.all_to_all_single(told, counts.to(dtype))
    dist.all_reduce(load)
    _ = load.square()


def dropout_of_equal_values(*, seed_of_rank: int = 0) -> None:
    torch.manual_seed(5 + seed_of_rank * dist.get_rank())
    model = typed(nn.Linear(4, 4))
    x = spmd.assert_type(torch.randn(6, 4), {dist.group.WORLD: R})
    nn.functional.dropout(model(x), 0.5)


def data() -> torch.Tensor:
    return spmd.assert_type(torch.randn(6, 4), {dist.group.WORLD: S(0)})


def typed(model: nn.Module) -> nn.Module:
    spmd.assert_type(list(model.parameters()), {dist.group.WORLD: R})
    return model


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = typed(nn.Linear(4, 4))
    model(data()).square().mean().backward()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def codes(program: Any, *, local: bool, **changed: Any) -> list[str]:
    def run() -> list[str]:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
        found = Collector()
        with spmd.set_current_mesh(mesh), checking(strict=False, local=local, observe=True, collect=found):
            program(**changed)
        return [one.code for one in found.result().findings]

    (rank,) = FakeWorld(RANKS).run(run)
    return rank


RIGHT = [
    gradients_in_a_ring,
    error_feedback,
    low_rank,
    owner_steps,
    one_loss_on_every_rank,
    gathered_and_averaged,
    inner_steps,
    pairs_in_a_ring,
    scan_of_parts,
    experts_pick_rows,
    dropout_of_equal_values,
    counts_are_exchanged,
]


@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_a_right_program_has_no_finding(program, local):
    assert codes(program, local=local) == []


@pytest.mark.parametrize(
    ("program", "changed", "local", "code"),
    [
        (gradients_in_a_ring, {"sum": lambda flat: flat}, True, "SW608"),
        (error_feedback, {"sent": "decay"}, True, "SW113"),
        (low_rank, {"whole": False}, True, "SW113"),
        (owner_steps, {"sends": False}, True, "SW120"),
        (one_loss_on_every_rank, {"divisor": 2}, True, "SW616"),
        (inner_steps, {"outer_sum": False}, True, "SW608"),
        (pairs_in_a_ring, {"goes_round": False}, False, "SW401"),
        (scan_of_parts, {"passes_on": False}, False, "SW405"),
        (experts_pick_rows, {"sums": False}, False, "SW408"),
        (dropout_of_equal_values, {"seed_of_rank": 1}, True, "SW121"),
        (counts_are_exchanged, {"dtype": torch.float32}, False, "SW210"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_its_twin_with_one_change_has(program, changed, local, code):
    assert code in codes(program, local=local, **changed)
