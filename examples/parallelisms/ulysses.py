"""Sequence-to-head parallelism (DeepSpeed-Ulysses): attention sees whole sequences of some heads, by all-to-all."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import piece, start, whole
from torch import Tensor, nn

import shardwise as spmd
from shardwise import P, R, S

mesh = start("dp", "sp")
BATCH, LENGTH, HEADS, WIDTH = 4, 8, 4, 3


class Attention(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.inner = nn.Parameter(whole(seed, HEADS * WIDTH, 3 * HEADS * WIDTH))
        self.outer = nn.Parameter(whole(seed + 1, HEADS * WIDTH, HEADS * WIDTH))
        spmd.assert_type([self.inner, self.outer], {"dp": R, "sp": R})

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H A] to the same; T is this sp rank's piece of the sequence."""
        parts = (x @ self.inner).unflatten(-1, (3, HEADS, WIDTH)).permute(2, 0, 3, 1, 4)
        query, key, value = spmd.all_to_all(parts, "sp", src=S(3), dst=S(2)).unbind(0)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        seen = spmd.all_to_all(seen, "sp", src=S(1), dst=S(2))
        return x + seen.transpose(1, 2).flatten(2) @ self.outer


with spmd.set_current_mesh(mesh):
    model = nn.Sequential(Attention(0), Attention(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        full = whole(100 + step, BATCH, LENGTH, HEADS * WIDTH)
        x = spmd.assert_type(piece(full, mesh, dp=0, sp=1), {"dp": S(0), "sp": S(1)})
        tokens = spmd.sum(model(x).square().sum(-1), "sp", src=S(1), dst=P)
        loss = spmd.sum(tokens, "dp", src=S(0), dst=P) / (x[..., 0].numel() * dist.get_world_size())
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad, group=mesh.get_group("dp"))
            dist.all_reduce(weight.grad, group=mesh.get_group("sp"))
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
