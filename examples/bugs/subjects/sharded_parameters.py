"""Sharded data parallelism by hand (ZeRO stage 3): weights lie in pieces and are gathered where they are used."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import PartitionSpec, R, S

mesh = start("replica", "shard")
BATCH, WIDTH = 8, 12


class Layer(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(piece(whole(seed, WIDTH, WIDTH), mesh, shard=0))
        self.bias = nn.Parameter(whole(seed + 1, WIDTH))
        spmd.assert_type(self.weight, {"replica": R, "shard": S(0)})
        spmd.assert_type(self.bias, {"replica": R, "shard": R})

    def forward(self, x: Tensor) -> Tensor:
        weight = spmd.all_gather(self.weight, "shard", src=S(0), dst=R)
        return torch.tanh(F.linear(x, weight, self.bias))


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(Layer(0), Layer(10), Layer(20))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        x = piece(whole(100 + step, BATCH, WIDTH), mesh, replica=0, shard=0)
        x = spmd.assert_type(x, {}, PartitionSpec(("replica", "shard"), None))
        rows = model(x).square().sum(-1)
        loss = spmd.sum(rows, 0, out_partial_axes=("replica", "shard")) / (rows.shape[0] * dist.get_world_size())
        loss.backward()
        for layer in model:
            dist.all_reduce(layer.weight.grad, group=mesh.get_group("replica"))
            dist.all_reduce(layer.bias.grad, group=mesh.get_group("replica"))
            dist.all_reduce(layer.bias.grad, group=mesh.get_group("shard"))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
