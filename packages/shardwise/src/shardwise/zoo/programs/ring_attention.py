"""Ring attention (Liu et al., 2023): keys and values go around, and each rank adds up what its queries see of them.

Mesh:    cp along links between neighbours: a rank sends to the next one only, while it computes on what it has.
Choose:  for the longest sequences: no rank ever holds all keys and values, as it does when they are gathered.
Breaks:  softmax taken piece by piece without rescaling by the largest score so far; positions that do not travel with
         the keys; a backward pass that sends the same way round as forward. In plain order the first ranks would wait
         for the last one, whose queries see all keys; pieces lie as for context parallelism.
Memory:  3 * D * D
Activations: B / dp * T / cp * ((3 * cp + 2) * D + 2 * T + 3 * cp - 1 + max(cp - 2, 0)) + T / cp * T / 8
Traffic: cp = send(4 * B / dp * T / cp * D + T / cp) + all_reduce(3 * D * D)
         dp = all_reduce(3 * D * D)
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

import shardwise as spmd
from shardwise import S
from shardwise.zoo.program import Tensors, ZooProgram, main
from shardwise.zoo.programs.context_parallel import positions

B, T, D = 4, 8, 6


def shifted(x: Tensor, group: dist.ProcessGroup, by: int) -> Tensor:
    """What the rank ``by`` places before this one has."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return x.clone()
    sent, received = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    sending = dist.P2POp(dist.isend, sent, group=group, group_peer=(rank + by) % size)
    receiving = dist.P2POp(dist.irecv, received, group=group, group_peer=(rank - by) % size)
    for work in dist.batch_isend_irecv([sending, receiving]):
        work.wait()
    return received


@spmd.register_local_autograd_function  # what differs between ranks differs after it, in both directions
class Shift(torch.autograd.Function):
    """One place onward in forward, one place back in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return shifted(x, group, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return shifted(gradient, ctx.group, -1), None


def single(w: Tensors, x: Tensors) -> Tensor:
    score = (x.tokens @ w.query) @ (x.tokens @ w.key).mT / math.sqrt(D)
    score = score.masked_fill(x.position[None, :] > x.position[:, None], -torch.inf)
    return (x.tokens + score.softmax(-1) @ (x.tokens @ w.value)).square().sum() / (B * T)


def passed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """What the rank before has of ``x``; differentiable."""
    received: Tensor = Shift.apply(x, group)  # type: ignore[no-untyped-call]
    return received


def ring(query: Tensor, key: Tensor, value: Tensor, own: Tensor, mesh: DeviceMesh) -> Tensor:
    """What the queries at positions ``own`` see of all keys and values, which pass by one piece at a time."""
    group, every = mesh.get_group("cp"), own
    score = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(every[None, :] > own[:, None], -torch.inf)
    largest = score.amax(-1, keepdim=True)
    weight = (score - largest).exp()
    seen, total = weight @ value, weight.sum(-1, keepdim=True)
    for _ in range(mesh["cp"].size() - 1):
        key, value, every = passed(key, group), passed(value, group), shifted(every, group, 1)
        score = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(every[None, :] > own[:, None], -torch.inf)
        larger = torch.maximum(largest, score.amax(-1, keepdim=True))
        weight, shrunk = (score - larger).exp(), (largest - larger).exp()
        seen, total, largest = seen * shrunk + weight @ value, total * shrunk + weight.sum(-1, keepdim=True), larger
    return seen / total


attention = spmd.local_map(out_types={"dp": S(0), "cp": S(1)})(ring)


def parallel(w: Tensors, x: Tensors, mesh: DeviceMesh) -> Tensor:
    y = x.tokens + attention(x.tokens @ w.query, x.tokens @ w.key, x.tokens @ w.value, x.position, mesh)
    return spmd.mean(y.square().sum(-1), (0, 1), out_partial_axes=("dp", "cp"))


PROGRAM = ZooProgram(
    mesh={"dp": 2, "cp": 2},
    shared=["dp", "cp"],
    weights=dict.fromkeys(("query", "key", "value"), "f64[6, 6] {dp: R, cp: R}"),
    inputs={"tokens": "f64[4@dp, 8@cp, 6]", "position": "i64[8@cp] {dp: R}"},
    constants={"position": positions},
    within={"half of the positions": "i64[4@cp]"},
    single=single,
    parallel=parallel,
)

if __name__ == "__main__":
    main(PROGRAM)
