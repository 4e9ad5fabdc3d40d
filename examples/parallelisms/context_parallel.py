"""Context parallelism: each cp rank has a piece of the sequence; keys and values are gathered, positions are global."""

import torch
import torch.distributed as dist
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import P, R, S

mesh = start("dp", "cp")
BATCH, LENGTH, WIDTH = 4, 8, 6


class Attention(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        for number, name in enumerate(("query", "key", "value")):
            weight = nn.Parameter(whole(seed + number, WIDTH, WIDTH))
            self.register_parameter(name, spmd.assert_type(weight, {"dp": R, "cp": R}))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """[B, T, D] and [T], both this cp rank's piece of the sequence."""
        query, key, value = x @ self.query, x @ self.key, x @ self.value
        key = spmd.all_gather(key, "cp", src=S(1), dst=R)
        value = spmd.all_gather(value, "cp", src=S(1), dst=R)
        everywhere = spmd.all_gather(position, "cp", src=S(0), dst=R)
        score = query @ key.mT / WIDTH**0.5
        score = score.masked_fill(everywhere[None, :] > position[:, None], -torch.inf)
        return x + score.softmax(-1) @ value


with spmd.set_current_mesh(mesh):
    first, second = Attention(0), Attention(10)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for step in range(2):
        full = whole(100 + step, BATCH, LENGTH, WIDTH)
        x = spmd.assert_type(piece(full, mesh, dp=0, cp=1), {"dp": S(0), "cp": S(1)})
        position = spmd.assert_type(piece(torch.arange(LENGTH), mesh, cp=0), {"dp": R, "cp": S(0)})
        tokens = second(first(x, position), position).square().sum(-1)
        tokens = spmd.sum(tokens, "cp", src=S(1), dst=P)
        loss = spmd.sum(tokens, "dp", src=S(0), dst=P) / (x[..., 0].numel() * dist.get_world_size())
        loss.backward()
        for weight in parameters:
            dist.all_reduce(weight.grad, group=mesh.get_group("dp"))
            dist.all_reduce(weight.grad, group=mesh.get_group("cp"))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
